"""The engine `threads` gives torch's batches, in torch's order, and draws what torch draws."""

from __future__ import annotations

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
    DistributedSampler,
    RandomSampler,
    Sampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import unstarve
from same_batches import same
from thread_rows import COUNT, OneByOne, Rows, Split, ours
from unstarve.fixes.loader.engines import thread_iterator
from unstarve.fixes.loader.engines.read_ahead import BatchThreads
from unstarve.fixes.memory.buffers import empty_batch


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


def test_parts_of_parts_are_read_by_threads() -> None:
    subset = Subset(Subset(Rows(), [5, 6, 7, 8]), [3, 1])
    assert [labels.tolist() for _, labels in ours(subset, batch_size=2)] == [[8, 6]]


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
