"""Batches made in steps: the same whatever the number of threads, and the draws are torch's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset

import unstarve
from same_batches import same
from unstarve.fixes.loader.engines import drawn_batches, drawn_iterator, thread_readers
from unstarve.fixes.loader.engines.drawn_iterator import DrawnAhead, DrawnIterator

# torch warns of more workers than the machine has cores.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

COUNT = 42


class Noisy(Dataset[Any]):
    """Samples (index, a random number), whose batches take the longer to read, the earlier they are."""

    releases_gil = True
    draws = True

    def __init__(self) -> None:
        self.bad_to_read: set[int] = set()
        self.bad_to_make: set[int] = set()
        self.made: list[list[int]] = []

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        if index in self.bad_to_read:
            raise OSError(f"{index} is gone")
        drawn = torch.rand(1 + index % 3)[0]  # some draw more than others
        if index in self.bad_to_make:
            raise ValueError(f"{index} is damaged")
        return index, drawn

    def load_batch(self, indices: Sequence[int]) -> Pending:
        time.sleep(0.002 * (indices[0] % 3))
        if bad := self.bad_to_read & set(indices):
            raise OSError(f"{min(bad)} is gone")
        return Pending(self, [int(index) for index in indices])

    def read_batch(self, indices: Sequence[int]) -> Any:
        raise AssertionError("batches are made in steps")


class Pending:
    def __init__(self, dataset: Noisy, indices: list[int]) -> None:
        self.dataset = dataset
        self.indices = indices
        self.numbers: list[torch.Tensor] = []

    def draw(self, generator: torch.Generator | None) -> None:
        self.numbers = [torch.rand(1 + index % 3, generator=generator)[0] for index in self.indices]

    def make(self) -> Any:
        if bad := self.dataset.bad_to_make & set(self.indices):
            raise ValueError(f"{min(bad)} is damaged")
        self.dataset.made.append(self.indices)
        return [torch.tensor(self.indices), torch.stack(self.numbers)]


def training(make: Any, workers: int, loop: Callable[[Any, int], Any], **arguments: Any) -> list[Any]:
    """Two whole epochs, one abandoned, another whole one, and what the process draws afterwards."""
    torch.manual_seed(4)
    settings = {"batch_size": 4, "shuffle": True, "num_workers": workers, **arguments}
    loader = make(Noisy(), **settings)
    seen: list[Any] = []
    for epoch in range(4):
        for number, batch in enumerate(loader):
            seen.append((batch, loop(batch, number)))
            if epoch == 2 and number == 3:
                break
    return [*seen, torch.rand(2)]


def draws_nothing(batch: Any, number: int) -> None:
    """A loop whose model draws on a GPU, or not at all."""


def draws_always(batch: Any, number: int) -> Any:
    return torch.rand(3)


def draws_now_and_then(batch: Any, number: int) -> Any:
    return torch.randn(1) if number % 3 == 1 else None


def seeds(batch: Any, number: int) -> None:
    torch.manual_seed(number)


@pytest.mark.parametrize("loop", [draws_nothing, draws_always, draws_now_and_then, seeds])
def test_without_workers_batches_and_draws_are_those_of_torch(loop: Callable[[Any, int], Any]) -> None:
    assert same(training(unstarve.DataLoader, 0, loop), training(DataLoader, 0, loop))


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [1, 3])
def test_with_workers_they_are_those_of_torchs_workers(workers: int, persistent: bool) -> None:
    settings = {"persistent_workers": persistent}
    ours = training(unstarve.DataLoader, workers, draws_always, **settings)
    assert same(ours, training(DataLoader, workers, draws_always, **settings))


@pytest.mark.parametrize("workers", [0, 2])
def test_the_number_of_threads_changes_nothing(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = []
    for threads in (1, 2, 3, 8):
        monkeypatch.setattr(drawn_iterator, "THREADS", threads)
        digests.append(training(unstarve.DataLoader, workers, draws_now_and_then))
    assert all(same(digest, digests[0]) for digest in digests)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("trained", [0, 1, 5])
def test_a_resumed_epoch_draws_what_is_left(workers: int, trained: int) -> None:
    def loader() -> Any:
        return unstarve.DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=workers)

    torch.manual_seed(6)
    first = loader()
    batches = iter(first)
    for _ in range(trained):
        next(batches)
    state = first.state_dict()
    expected = [*batches, *first]
    del batches
    torch.manual_seed(7)
    second = loader()
    second.load_state_dict(state)
    assert same([*second, *second], expected)


@pytest.mark.parametrize("workers", [0, 1])
def test_after_an_error_the_draws_go_on_as_in_torch(workers: int) -> None:
    def run(make: Any) -> list[Any]:
        torch.manual_seed(2)
        dataset = Noisy()
        # torch draws sample by sample, we for the whole batch: they agree where its last one fails
        dataset.bad_to_make = {11}
        batches = iter(make(dataset, batch_size=4, num_workers=workers))
        seen: list[Any] = []
        while True:
            try:
                seen.append(next(batches))
            except StopIteration:
                return seen
            except ValueError as error:
                seen.append(str(error).splitlines()[-1].split(": ")[-1])

    ours = run(unstarve.DataLoader)
    assert ours[2] == "11 is damaged"
    assert same(ours, run(DataLoader))


def test_a_file_that_is_gone_costs_its_batch_and_no_draw() -> None:
    dataset = Noisy()
    dataset.bad_to_read = {5}
    before = torch.get_rng_state()
    batches = iter(unstarve.DataLoader(dataset, batch_size=4))
    next(batches)
    drawn = torch.get_rng_state()
    with pytest.raises(OSError, match="5 is gone"):
        next(batches)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert not torch.equal(drawn, before)
    assert next(batches)[0].tolist() == [8, 9, 10, 11]


def test_dropped_batches_draw_but_are_not_made() -> None:
    loader = unstarve.DataLoader(
        Noisy(), batch_size=1, num_workers=2, prefetch_factor=8, persistent_workers=True
    )
    batches: Any = iter(loader)
    assert isinstance(batches, DrawnIterator)
    for _ in range(2):
        next(iter(loader))
    made = loader.dataset.made  # type: ignore[attr-defined] # of Noisy
    assert len(made) < 3 * 16
    expected = DataLoader(Noisy(), batch_size=1, num_workers=2, prefetch_factor=8, persistent_workers=True)
    assert len(list(expected)) == len(list(loader))


def test_parts_are_made_in_steps_too() -> None:
    (batch,) = unstarve.DataLoader(Subset(Noisy(), [7, 9]), batch_size=2)
    assert batch[0].tolist() == [7, 9]


def test_who_draws_in_between_is_soon_waited_for() -> None:
    ahead = DrawnAhead()
    tried = 0
    for _ in range(1000):
        if ahead.pays():
            tried += 1
            ahead.was_wrong()
    assert 5 < tried < 15
    for _ in range(20_000):
        if ahead.pays():
            ahead.was_right()
    assert ahead.pays()


def test_several_batches_are_in_the_making_at_once() -> None:
    together = threading.Barrier(drawn_batches.THREADS)

    class Meeting(Noisy):
        def load_batch(self, indices: Sequence[int]) -> Pending:
            if indices[0] < drawn_batches.THREADS:
                together.wait(60)
            return super().load_batch(indices)

    for workers in (0, 4):
        assert len(list(unstarve.DataLoader(Meeting(), batch_size=1, num_workers=workers))) == COUNT


@pytest.mark.parametrize(
    ("workers", "ranks", "threads"), [(0, "1", 8), (2, "1", 8), (0, "4", 2), (5, "4", 5), (99, "1", 8)]
)
def test_threads_are_the_cores_of_the_rank_or_what_is_asked_for(
    workers: int, ranks: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    monkeypatch.setattr(thread_readers, "usable_cores", lambda: 8)
    monkeypatch.setattr("unstarve.machine.usable_cores", lambda: 8)
    monkeypatch.setattr("unstarve.machine.cgroup_quota_cores", lambda: None)
    assert thread_readers.native_threads(workers) == threads
