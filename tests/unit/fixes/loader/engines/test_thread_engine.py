"""The engine `threads` gives torch's batches, in torch's order, and draws what torch draws."""

from __future__ import annotations

import gc
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import unstarve
from same_batches import same
from unstarve.fixes.loader.engines import read_ahead, thread_engine, thread_iterator
from unstarve.fixes.loader.engines.read_ahead import THREADS, BatchThreads, ReadAheadPace
from unstarve.fixes.memory.buffers import empty_batch

COUNT = 23


class Rows(Dataset[Any]):
    """Samples (row i, i), which can be read as batches by several threads."""

    releases_gil = True

    def __init__(self, count: int = COUNT) -> None:
        self.count = count
        self.asked: list[list[int]] = []
        self.bad: set[int] = set()
        self.gate: threading.Event | None = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return torch.full((3,), float(index)), index

    def read_batch(self, indices: Sequence[int]) -> Any:
        wanted = [int(index) for index in indices]
        self.asked.append(wanted)
        if self.gate is not None:
            assert self.gate.wait(180)
        if bad := self.bad & set(wanted):
            raise KeyError(f"no row {min(bad)}")
        batch = empty_batch((len(indices), 3), torch.float32)
        labels = torch.as_tensor(np.asarray(indices))
        batch[:] = labels[:, None]
        return [batch, labels]


class Split(Rows):
    """A dataset that reads each batch with all threads, so that the loop's own thread may read, too."""

    splits_batches = True


def ours(dataset: Any, **arguments: Any) -> unstarve.DataLoader[Any]:
    loader: unstarve.DataLoader[Any] = unstarve.DataLoader(dataset, engine="threads", **arguments)
    assert loader.engine == "threads"
    return loader


def reading_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("unstarve-read")]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    if reading_threads():
        gc.collect()  # which takes its time
    assert reading_threads() == []


def generator(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


Arguments = Callable[[], dict[str, Any]]
SETTINGS: dict[str, Arguments] = {
    "in order": lambda: {"batch_size": 4},
    "shuffled": lambda: {"batch_size": 4, "shuffle": True},
    "own generator": lambda: {"batch_size": 4, "shuffle": True, "generator": generator()},
    "incomplete batch dropped": lambda: {"batch_size": 4, "shuffle": True, "drop_last": True},
    "weighted": lambda: {"batch_size": 5, "sampler": WeightedRandomSampler([1.0] * COUNT, 40)},
    "some at random": lambda: {"batch_size": 5, "sampler": SubsetRandomSampler(range(3, 20))},
    "with replacement": lambda: {
        "batch_size": 5,
        "sampler": RandomSampler(range(COUNT), replacement=True, num_samples=90),
    },
    "distributed": lambda: {
        "batch_size": 2,
        "sampler": DistributedSampler(range(COUNT), num_replicas=2, rank=1),  # type: ignore[arg-type]
    },
    "batch sampler": lambda: {
        "batch_sampler": BatchSampler(RandomSampler(range(COUNT)), batch_size=6, drop_last=False)
    },
    "one": dict,
}


def epochs_of(loader: Any, abandon_after: int | None) -> tuple[list[Any], list[int]]:
    """Two epochs and one more draw from each generator that the loader may have touched."""
    batches: list[Any] = []
    for epoch in range(3):
        for number, batch in enumerate(loader):
            batches.append(batch)
            if epoch == 1 and number == abandon_after:
                break
    draws = [int(torch.empty((), dtype=torch.int64).random_())]
    if loader.generator is not None:
        draws.append(int(torch.empty((), dtype=torch.int64).random_(generator=loader.generator)))
    return batches, draws


def check_against_torch(
    arguments: Arguments, workers: int, abandon_after: int | None, kind: type[Rows] = Rows
) -> None:
    torch.manual_seed(5)
    given = epochs_of(ours(kind(), num_workers=workers, **arguments()), abandon_after)
    torch.manual_seed(5)
    expected = epochs_of(DataLoader(Rows(), num_workers=workers, **arguments()), abandon_after)
    assert same(given[0], expected[0])
    assert given[1] == expected[1]


@pytest.mark.parametrize("abandon_after", [None, 0, 2, 3, 4, 5])
@pytest.mark.parametrize("setting", SETTINGS)
def test_batches_order_and_draws_are_those_of_torch(setting: str, abandon_after: int | None) -> None:
    check_against_torch(SETTINGS[setting], 0, abandon_after)


@pytest.mark.parametrize("kind", [Rows, Split])
@pytest.mark.parametrize("abandon_after", [None, 2])
@pytest.mark.parametrize("setting", ["in order", "own generator", "with replacement", "batch sampler"])
def test_with_workers_they_are_those_of_torch_with_workers(
    setting: str, abandon_after: int | None, kind: type[Rows]
) -> None:
    check_against_torch(SETTINGS[setting], 2, abandon_after, kind)


class OneByOne(Sampler[int]):
    """Draws from the default generator for every index."""

    def __iter__(self) -> Iterator[int]:
        for _ in range(20):
            yield int(torch.randint(COUNT, ()))

    def __len__(self) -> int:
        return 20


@pytest.mark.parametrize("kind", [Rows, Split])
@pytest.mark.parametrize("abandon_after", [None, 1])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_sampler_is_asked_when_torch_asks_it(
    persistent: bool, abandon_after: int | None, kind: type[Rows]
) -> None:
    def run(make: Any) -> tuple[list[Any], list[int]]:
        torch.manual_seed(7)
        dataset = kind()
        loader = make(
            dataset,
            batch_size=3,
            sampler=OneByOne(),
            num_workers=2,
            persistent_workers=persistent,
            generator=generator(),
        )
        batches: list[Any] = []
        drawn: list[int] = []
        for _ in range(3):
            for number, batch in enumerate(loader):
                drawn.append(int(torch.randint(1000, ())))  # the training loop draws, too
                batches.append(batch)
                if number == abandon_after:
                    break
        return batches, [*drawn, int(torch.randint(1000, (), generator=loader.generator))]

    given, expected = run(ours), run(DataLoader)
    assert same(given[0], expected[0])
    assert given[1] == expected[1]


class SameList(Sampler[list[int]]):
    """Gives one object again and again, with other contents."""

    def __init__(self, kind: Any) -> None:
        self.batch = kind([0, 0])

    def __iter__(self) -> Iterator[Any]:
        for i in range(8):
            self.batch[0] = self.batch[1] = i
            yield self.batch

    def __len__(self) -> int:
        return 8


@pytest.mark.parametrize("dataset", [Rows, Split])
@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_a_sampler_may_give_the_same_object_again(kind: Any, dataset: type[Rows]) -> None:
    loader = ours(dataset(), batch_sampler=SameList(kind), num_workers=2)
    for _ in range(3):
        assert [labels.tolist() for _, labels in loader] == [[i, i] for i in range(8)]


def test_no_more_is_read_ahead_than_prefetching_allows() -> None:
    dataset = Rows()
    dataset.gate = threading.Event()
    batches = iter(ours(dataset, batch_size=1, num_workers=2, prefetch_factor=3))
    dataset.gate.set()
    next(batches)
    next(batches)
    deadline_s = time.monotonic() + 180
    while len(dataset.asked) < 8 and time.monotonic() < deadline_s:
        time.sleep(0.001)
    time.sleep(0.02)  # for what must not come
    assert len(dataset.asked) == 8  # two taken and 2 × 3 ahead


def test_batches_come_in_order_whichever_thread_is_first() -> None:
    class Uneven(Rows):
        def read_batch(self, indices: Sequence[int]) -> Any:
            time.sleep(0.01 if indices[0] % 3 == 0 else 0)
            return super().read_batch(indices)

    loader = ours(Uneven(), batch_size=1, num_workers=2)
    assert [int(labels) for _, labels in loader] == list(range(COUNT))


@pytest.mark.parametrize("kind", [Rows, Split])
@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_is_raised_at_its_batch_and_the_next_ones_follow(workers: int, kind: type[Rows]) -> None:
    dataset = kind(12)
    dataset.bad = {4, 10}
    loader = ours(dataset, batch_size=2, num_workers=workers)
    for _ in range(3):
        batches = iter(loader)
        seen: list[Any] = []
        while True:
            try:
                seen.append(next(batches)[1].tolist())
            except StopIteration:
                break
            except KeyError as error:
                assert "read_batch" in "".join(traceback.format_exception(error))  # noqa: PT017  # one of several
                seen.append(str(error))
        assert seen == [[0, 1], [2, 3], "'no row 4'", [6, 7], [8, 9], "'no row 10'"]


@pytest.mark.parametrize("kind", [Rows, Split])
def test_a_batch_that_takes_too_long_is_an_error_as_in_torch(kind: type[Rows]) -> None:
    dataset = kind(4)
    dataset.gate = threading.Event()
    batches = iter(ours(dataset, batch_size=2, num_workers=1, timeout=0.05))
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.05 seconds"):
        next(batches)
    dataset.gate.set()
    while True:
        try:
            assert next(batches)[1].tolist() == [0, 1]
            break
        except RuntimeError:
            continue


class Readers(Split):
    """Remembers which threads read."""

    def __init__(self, count: int = COUNT) -> None:
        super().__init__(count)
        self.readers: list[str] = []

    def read_batch(self, indices: Sequence[int]) -> Any:
        self.readers.append(threading.current_thread().name)
        return super().read_batch(indices)


def never_stepping(monkeypatch: pytest.MonkeyPatch, *, waited: bool) -> None:
    """Let every loop do nothing between batches, and every batch be waited for, or none."""

    class Pace(ReadAheadPace):
        def gives(self, now_s: float, make_s: float, **_: Any) -> None:
            super().gives(now_s, 1.0, waited=waited)
            self._given_s, self._step_s = None, 0.0

    monkeypatch.setattr(thread_iterator, "ReadAheadPace", Pace)
    monkeypatch.setattr(read_ahead, "_blocks_read", lambda: 0)


@pytest.mark.parametrize("persistent", [False, True])
def test_with_workers_too_the_loop_reads_what_all_threads_read_at_once(
    persistent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_stepping(monkeypatch, waited=False)
    dataset = Readers()
    loader = ours(dataset, batch_size=1, num_workers=2, persistent_workers=persistent)
    for _ in range(2):
        assert [int(labels) for _, labels in loader] == list(range(COUNT))
    assert set(dataset.readers[COUNT:]) == {threading.current_thread().name}
    del loader


def test_with_workers_what_waits_is_read_by_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    never_stepping(monkeypatch, waited=True)
    dataset = Readers()
    loader = ours(dataset, batch_size=1, num_workers=2)
    for _ in range(2):
        assert [int(labels) for _, labels in loader] == list(range(COUNT))
    assert set(dataset.readers) <= {"unstarve-read-0", "unstarve-read-1"}


@pytest.mark.parametrize("workers", [0, 2])
def test_an_abandoned_epoch_leaves_no_thread(workers: int) -> None:
    batches = iter(ours(Rows(), batch_size=2, num_workers=workers))
    next(batches)
    assert len(reading_threads()) == (workers or THREADS)
    del batches
    gc.collect()
    assert reading_threads() == []


def test_a_finished_epoch_leaves_no_thread_and_stays_finished() -> None:
    batches = iter(ours(Rows(4), batch_size=2, num_workers=2))
    assert len(list(batches)) == 2
    assert reading_threads() == []
    with pytest.raises(StopIteration):
        next(batches)


def test_persistent_threads_live_as_long_as_the_loader() -> None:
    loader = ours(Rows(8), batch_size=2, num_workers=2, persistent_workers=True)
    iterator = iter(loader)
    next(iterator)
    assert iter(loader) is iterator
    assert [labels.tolist() for _, labels in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert len(reading_threads()) == 2
    del loader, iterator


def test_parts_of_parts_are_read_by_threads() -> None:
    subset = Subset(Subset(Rows(), [5, 6, 7, 8]), [3, 1])
    assert [labels.tolist() for _, labels in ours(subset, batch_size=2)] == [[8, 6]]


class Stream(IterableDataset[int]):
    releases_gil = True

    def read_batch(self, indices: Any) -> Any: ...
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


class Held(Rows):
    releases_gil = False


REFUSED: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "stream": (Stream, {}, "IterableDataset"),
    "no read_batch": (lambda: list(range(5)), {}, "no read_batch"),
    "holds the GIL": (Held, {}, "no read_batch that releases the GIL"),
    "part of such": (lambda: Subset(Held(), [1]), {}, "no read_batch"),
    "single samples": (Rows, {"batch_size": None}, "batch_size=None"),
    "own collate": (Rows, {"collate_fn": list}, "collate_fn"),
    "own start": (Rows, {"num_workers": 1, "worker_init_fn": print}, "worker_init_fn"),
    "own sampler": (Rows, {"sampler": OneByOne()}, "batch by batch"),
    "own batch sampler": (Rows, {"batch_sampler": [[1], [2]]}, "batch by batch"),
    "draws over time": (
        Rows,
        {"sampler": RandomSampler(range(9), replacement=True, generator=generator())},
        "batch by batch",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_threads_cannot_do_as_well_is_refused(name: str) -> None:
    make, arguments, reason = REFUSED[name]
    loader = DataLoader(make(), **arguments)
    assert reason in (thread_engine.why_no_threads(loader) or "")
    with pytest.raises(ValueError, match="engine 'threads' cannot run this loader"):
        unstarve.DataLoader(make(), engine="threads", **arguments)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"num_workers": 2}, "2 threads read ahead"),
        ({}, f"{THREADS} threads read"),
        ({"worker_init_fn": print}, f"{THREADS} threads"),
        ({"sampler": SequentialSampler(range(4))}, f"{THREADS} threads"),
        ({"sampler": OneByOne(), "num_workers": 1}, "1 thread "),
    ],
)
def test_what_threads_can_do_they_say(arguments: dict[str, Any], why: str) -> None:
    loader = DataLoader(Rows(), **arguments)
    assert thread_engine.why_no_threads(loader) is None
    assert why in thread_engine.why_threads(loader)


def test_a_dataset_that_cannot_be_read_any_more_is_an_error() -> None:
    dataset = Rows()
    loader = ours(dataset)
    dataset.releases_gil = False
    with pytest.raises(ValueError, match="no longer has a read_batch that releases the GIL"):
        thread_engine.iterate(loader)


def test_a_thread_that_cannot_begin_fails_its_batches() -> None:
    def begin(number: int) -> None:
        raise OSError("no device")

    reading = BatchThreads(1, lambda what: what, begin)
    reading.ask(1)
    assert isinstance(reading.take(None)[1], OSError)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_that_are_kept_stay_as_they_are(workers: int, tmp_path: Path) -> None:
    for i in range(16):
        np.save(tmp_path / f"{i:02}.npy", np.full(100_000, i, np.int32))
    dataset = unstarve.TensorFileDataset(tmp_path, labels=list(range(16)))
    loader = ours(dataset, batch_size=4, num_workers=workers)
    for _ in range(2):
        kept = list(loader)
        for values, labels in kept:
            assert torch.equal(values, labels[:, None].expand_as(values).to(torch.int32))


def test_files_come_in_the_same_batches_as_from_torch(tmp_path: Path) -> None:
    for i in range(10):
        torch.save({"x": torch.randn(5), "y": i}, tmp_path / f"{i}.pt")
    dataset = unstarve.TensorFileDataset(tmp_path)
    settings: dict[str, Any] = {"batch_size": 3, "shuffle": True}
    torch.manual_seed(0)
    expected = list(DataLoader(dataset, **settings))
    torch.manual_seed(0)
    loader: unstarve.DataLoader[Any] = unstarve.DataLoader(dataset, num_workers=2, **settings)
    assert loader.engine == "threads"
    assert same(list(loader), expected)
    transformed = unstarve.TensorFileDataset(tmp_path, transform=lambda sample: sample["x"])
    assert unstarve.DataLoader(transformed, num_workers=2, **settings).engine != "threads"


def test_one_bad_file_costs_one_batch(tmp_path: Path) -> None:
    for i in range(6):
        torch.save(torch.full((3,), i), tmp_path / f"{i}.pt")
    dataset = unstarve.TensorFileDataset(tmp_path)
    (tmp_path / "2.pt").unlink()
    batches = iter(ours(dataset, batch_size=2, num_workers=2))
    assert next(batches)[:, 0].tolist() == [0, 1]
    with pytest.raises(FileNotFoundError, match=r"2\.pt"):
        next(batches)
    assert next(batches)[:, 0].tolist() == [4, 5]


@pytest.mark.skipif(torch.accelerator.is_available(), reason="a device to pin memory for is there")
def test_without_a_device_pinning_warns_as_in_torch() -> None:
    for make in (ours, DataLoader):
        loader = make(Rows(2), pin_memory=True)
        with pytest.warns(UserWarning, match="no accelerator"):
            batches = list(loader)
        assert len(batches) == 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="pinning needs a CUDA device")
@pytest.mark.parametrize("workers", [0, 2])
def test_with_a_device_batches_are_pinned(workers: int) -> None:
    for values, labels in ours(Rows(), batch_size=4, num_workers=workers, pin_memory=True):
        assert values.is_pinned()
        assert labels.is_pinned()
        assert values[:, 0].tolist() == labels.tolist()


class Wide(Rows):
    def read_batch(self, indices: Sequence[int]) -> Any:
        return empty_batch((len(indices), 100_000), torch.float32)


def test_an_epoch_begins_in_the_memory_of_the_one_before() -> None:
    loader = ours(Wide(), batch_size=1, num_workers=2)
    assert sum(1 for _ in loader) == COUNT
    kept = {block.ctypes.data for free in thread_iterator._memories[loader]._free.values() for block in free}
    assert kept & {batch.data_ptr() for batch in loader}
