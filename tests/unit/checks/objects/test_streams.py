"""Streams that workers do not divide, and epochs that lose samples."""

from __future__ import annotations

import itertools
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.helpers.checked import findings, first_batches, ids
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # no worker is started


class Stream(IterableDataset[Any]):
    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[Any]:
        for row in self.rows:
            yield torch.tensor(row)


class Lines(IterableDataset[Any]):
    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[str]:
        with open(self.path) as lines:  # noqa: PTH123  # as many people write it
            for line in lines:
                yield line.strip()


class PathLines(Lines):
    def __iter__(self) -> Iterator[str]:
        with self.path.open() as lines:
            for line in lines:
                yield line.strip()


class Range(IterableDataset[Any]):
    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.end))


class Split(Stream):
    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        for row in self.rows[worker::workers]:
            yield torch.tensor(row)


class Shuffled(Stream):
    def __iter__(self) -> Iterator[Any]:
        order = torch.randperm(len(self.rows))
        for index in order:
            yield torch.tensor(self.rows[index])


class Endless(IterableDataset[Any]):
    """Random samples need not be split."""

    def __init__(self) -> None:
        self.count = 1000

    def __iter__(self) -> Iterator[Any]:
        for index in range(self.count):
            yield torch.randn(3) * index


class Sized(Split):
    def __init__(self, rows: Any, length: int) -> None:
        super().__init__(rows)
        self.length = length

    def __len__(self) -> int:
        return self.length


def split_range(worker_id: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.end = 5


def test_equal_first_batches_prove_that_a_stream_is_not_split() -> None:
    loader = DataLoader(Shuffled(range(40)), batch_size=4, num_workers=2)
    assert ids(loader) == []  # its source alone leaves a doubt
    batch = torch.arange(4)
    found = findings(loader, batches=(batch, batch.clone(), batch + 4))
    assert [one.id for one in found] == ["iterable-not-split"]
    assert "train_set" in found[0].message
    assert "2 batches" in found[0].message


@pytest.mark.parametrize("batch_size", [4, 1, None])
def test_batches_of_real_workers_prove_it(batch_size: int | None) -> None:
    loader = DataLoader(Stream(list(range(40))), batch_size=batch_size, num_workers=2)
    assert ids(loader, batches=first_batches(loader)) == ["iterable-not-split"]


def test_text_counts_as_well(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"line {i}\n" for i in range(40)))
    loader = DataLoader(Lines(path), batch_size=4, num_workers=2)
    assert ids(loader, batches=first_batches(loader)) == ["iterable-not-split"]


def test_source_alone_proves_it_where_everything_is_gone_through(tmp_path: Path) -> None:
    stored = DataLoader(Stream(list(range(40))), num_workers=3)
    (found,) = findings(stored)
    assert found.id == "iterable-not-split"
    assert "all of train_set.rows in each of 3 workers" in found.message
    assert ids(DataLoader(Lines(tmp_path / "lines.txt"), num_workers=2)) == ["iterable-not-split"]
    assert ids(DataLoader(PathLines(tmp_path / "lines.txt"), num_workers=2)) == ["iterable-not-split"]
    assert ids(DataLoader(Range(0, 10), num_workers=2)) == ["iterable-not-split"]


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(Stream(list(range(40))), batch_size=4, num_workers=0),
        DataLoader(Stream(list(range(40))), batch_size=4, num_workers=1),
        DataLoader(Split(list(range(40))), batch_size=4, num_workers=2),
        DataLoader(Endless(), batch_size=4, num_workers=2),
        DataLoader(Range(0, 10), batch_size=4, num_workers=2, worker_init_fn=split_range),
        DataLoader(Split([0] * 40), batch_size=4, num_workers=2),
    ],
)
def test_streams_that_are_split_or_random_are_left_alone(loader: DataLoader[Any]) -> None:
    assert ids(loader) == []
    if loader.worker_init_fn is None:
        assert ids(loader, batches=first_batches(loader)) == []


def test_the_fix_splits_the_stream() -> None:
    loader = DataLoader(Stream(list(range(8))), batch_size=None, num_workers=2)
    (found,) = findings(loader)
    scope: dict[str, Any] = {"torch": torch, "itertools": itertools}
    exec(found.fix, scope)
    fixed = type("Fixed", (Stream,), {"all_samples": Stream.__iter__, "__iter__": scope["__iter__"]})
    assert sorted(int(row) for row in DataLoader(fixed([*range(8)]), batch_size=None, num_workers=2)) == [
        *range(8)
    ]


def test_workers_without_a_shard_are_counted() -> None:
    (found,) = findings(DataLoader(Split([1, 2, 3]), num_workers=8))
    assert found.id == "fewer-shards-than-workers"
    assert "train_set.rows has 3 shards for 8 workers: 5 workers have nothing to read" in found.message
    assert "num_workers=3" in found.fix
    assert ids(DataLoader(Split([*range(8)]), num_workers=8)) == []


def test_shards_of_libraries_are_counted() -> None:
    def streams(self: Any) -> Iterator[Any]:
        info = get_worker_info()
        yield from range(info.id if info else 0)

    hugging = types.new_class(
        "IterableDataset", (IterableDataset,), {}, lambda body: body.update(__iter__=streams)
    )
    hugging.__module__, hugging.num_shards = "datasets.iterable_dataset", 2
    assert ids(DataLoader(hugging(), num_workers=4)) == ["fewer-shards-than-workers"]
    assert ids(DataLoader(hugging(), num_workers=2)) == []


def test_a_stream_longer_than_it_says_is_found() -> None:
    loader = DataLoader(Sized([*range(40)], 5), batch_size=4, num_workers=2)
    batches = tuple(torch.arange(4) + 4 * i for i in range(3))
    (found,) = findings(loader, batches=batches)
    assert found.id == "length-wrong"
    assert "len(train_set) is 5, but its first 3 batches hold 12 samples" in found.message
    right = DataLoader(Sized([*range(40)], 40), batch_size=4, num_workers=2)
    assert ids(right, batches=first_batches(right)) == []


def test_drop_last_is_reported_where_it_loses_much() -> None:
    data = TensorDataset(torch.arange(100))
    (found,) = findings(DataLoader(data, batch_size=64, shuffle=True, drop_last=True))
    assert found.id == "drop-last-loses"
    assert "36 of 100 samples: 36% of an epoch" in found.message
    (empty,) = findings(DataLoader(data, batch_size=128, shuffle=True, drop_last=True))
    assert "so an epoch has no batch" in empty.message
    (same,) = findings(DataLoader(data, batch_size=32, drop_last=True))
    assert "the same ones every time" in same.message


def test_drop_last_is_usual_where_it_loses_little() -> None:
    data = TensorDataset(torch.arange(100))
    assert ids(DataLoader(data, batch_size=32, shuffle=True, drop_last=True)) == []
    assert ids(DataLoader(data, batch_size=64, shuffle=True)) == []
    assert ids(DataLoader(data, batch_size=25, drop_last=True)) == []
