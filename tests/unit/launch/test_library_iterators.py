"""Loaders of torchdata.nodes are recorded like a ``DataLoader``, and stay what they are."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader, IterableDataset

import unstarve
from unstarve.api import load_run
from unstarve.launch import hooks
from unstarve.model import Process

nodes = pytest.importorskip("torchdata.nodes")


@pytest.fixture(autouse=True)
def _detached() -> Iterator[None]:
    yield
    hooks.detach()


def loader(count: int = 12) -> Any:
    return nodes.Loader(nodes.Batcher(nodes.IterableWrapper(range(count)), 4))


TWELVE = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def process_of(run: Path) -> Process:
    (process,) = load_run(run).processes
    return process


def positions(process: Process) -> list[tuple[int, int]]:
    return [(batch.epoch, batch.position) for batch in process.batches]


def test_epochs_and_batches_are_recorded_and_stay_the_same(tmp_path: Path) -> None:
    with unstarve.recording(tmp_path / "run"):
        train_loader = nodes.Loader(nodes.Batcher(nodes.IterableWrapper(range(12)), 4))
        seen = [list(train_loader) for _ in range(2)]
        state = train_loader.state_dict()
    plain = loader()
    assert seen == [list(plain) for _ in range(2)]
    assert state == plain.state_dict()
    process = process_of(tmp_path / "run")
    (told,) = process.loaders
    assert (told.name, told.kind) == ("train_loader", "Loader")
    assert told.where.startswith("tests/unit/launch/test_library_iterators.py:")
    assert (told.config["module"], told.config["parallel"]) == ("torchdata.nodes.loader", False)
    assert positions(process) == [(epoch, at) for epoch in range(2) for at in range(3)]
    assert [epoch.last_ask_ns is None for epoch in process.epochs] == [False, False]
    assert len([work for work in process.works if not work.failed]) == 6  # what it costs is counted


def test_a_loader_resumes_where_it_stopped(tmp_path: Path) -> None:
    first, second = loader(), loader()
    with unstarve.recording(tmp_path / "run"):
        assert list(islice(first, 1)) == TWELVE[:1]
        second.load_state_dict(first.state_dict())
        assert list(second) == TWELVE[1:]
    process = process_of(tmp_path / "run")
    assert len(process.loaders) == 2
    assert positions(process) == [(0, 0), (0, 0), (0, 1)]  # what resuming looks at is no batch


def test_an_epoch_begins_once_if_the_state_is_asked_for_first(tmp_path: Path) -> None:
    with unstarve.recording(tmp_path / "run"):
        train_loader = loader()
        train_loader.state_dict()
        assert list(train_loader) == TWELVE
    assert positions(process_of(tmp_path / "run")) == [(0, 0), (0, 1), (0, 2)]


def test_samples_made_ahead_have_no_price(tmp_path: Path) -> None:
    source = nodes.Batcher(nodes.IterableWrapper(range(12)), 4)
    with unstarve.recording(tmp_path / "run"):
        assert list(nodes.Loader(nodes.Prefetcher(source, 2))) == TWELVE
    process = process_of(tmp_path / "run")
    assert positions(process) == [(0, 0), (0, 1), (0, 2)]
    assert process.works == ()


def test_a_watched_loader_is_recorded_once(tmp_path: Path) -> None:
    with unstarve.recording(tmp_path / "run"):
        assert list(unstarve.watch(loader(), "mine")) == TWELVE
    process = process_of(tmp_path / "run")
    assert [told.name for told in process.loaders] == ["mine"]
    assert positions(process) == [(0, 0), (0, 1), (0, 2)]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield from loader()


def test_inside_of_a_dataset_it_is_a_part_of_the_dataset(tmp_path: Path) -> None:
    with unstarve.recording(tmp_path / "run"):
        list(DataLoader(Stream(), batch_size=None))
    process = process_of(tmp_path / "run")
    assert [told.kind for told in process.loaders] == ["DataLoader"]
    assert len(process.batches) == 3


def test_detaching_leaves_the_library_as_it_was() -> None:
    def held() -> list[dict[str, Any]]:
        return [dict(vars(cls)) for cls in (nodes.Loader, nodes.loader.LoaderIterator)]

    before = held()
    with unstarve.recording():
        list(loader())
        assert held() != before
    hooks.detach()
    assert held() == before


def test_an_exception_of_the_source_is_training_s_own(tmp_path: Path) -> None:
    def rotten(number: int) -> int:
        if number == 7:
            raise LookupError("sample 7 is rotten")
        return number

    with unstarve.recording(tmp_path / "run"):
        source = nodes.Loader(nodes.Batcher(nodes.Mapper(nodes.IterableWrapper(range(12)), rotten), 4))
        with pytest.raises(LookupError, match="sample 7 is rotten"):
            list(source)
    assert positions(process_of(tmp_path / "run")) == [(0, 0)]
