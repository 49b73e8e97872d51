"""An IterableDataset goes on: from the states that it saves, or by giving its first batches again."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, get_worker_info

from resumed import Stop, assert_resumes
from unstarve import DataLoader
from unstarve.errors import UsageError

LENGTHS = (9, 4, 7)
"""Samples of each shard: workers end at different times."""
STOPS = [Stop(0, 1), Stop(1, 0), Stop(1, 2), Stop(1, 3), Stop(1, None)]
made: list[int] = []
"""Samples that this process has made."""


def shard() -> tuple[int, int]:
    info = get_worker_info()
    number = 0 if info is None else info.id
    return number, LENGTHS[number]


class Plain(IterableDataset[Any]):
    """Saves nothing."""

    def __iter__(self) -> Iterator[Any]:
        number, length = shard()
        for at in range(length):
            made.append(at)
            yield torch.tensor([number, at]), torch.rand(1)


class Position(Iterator[Any]):
    """An iterator that saves its position."""

    def __init__(self) -> None:
        self.number, self.length = shard()
        self.at = 0

    def __next__(self) -> Any:
        if self.at == self.length:
            raise StopIteration
        made.append(self.at)
        self.at += 1
        return torch.tensor([self.number, self.at]), torch.rand(1)

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


class SavesIterator(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return Position()


class SavesItself(IterableDataset[Any]):
    """Saves its position; an epoch starts at 0 once the last one has ended."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[Any]:
        number, length = shard()
        while self.at < length:
            made.append(self.at)
            self.at += 1
            yield torch.tensor([number, self.at]), torch.rand(1)
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


class IsItsIterator(Position, IterableDataset[Any]):  # type: ignore[misc]  # both iterate
    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Any:
        self.number, self.length = shard()
        self.at = 0
        return self


DATASETS = {"plain": Plain, "iterator": SavesIterator, "dataset": SavesItself, "its own": IsItsIterator}


def make(kind: type[Any], **arguments: Any) -> Any:
    return DataLoader(kind(), batch_size=2, **arguments)


@pytest.mark.parametrize("stop", [*STOPS, Stop(1, 5)], ids=str)
@pytest.mark.parametrize("kind", DATASETS)
def test_without_workers(kind: str, stop: Stop) -> None:
    assert_resumes(functools.partial(make, DATASETS[kind]), stop)


@pytest.mark.parametrize("stop", [*STOPS, Stop(1, 6), Stop(1, 7)], ids=str)
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("kind", DATASETS)
def test_each_worker_goes_on_with_its_part(kind: str, persistent: bool, stop: Stop) -> None:
    workers = {"num_workers": 2, "persistent_workers": persistent}
    assert_resumes(functools.partial(make, DATASETS[kind], **workers), stop)


@pytest.mark.parametrize("kind", ["plain", "iterator"])
def test_the_engine_may_change(kind: str) -> None:
    workers = functools.partial(make, DATASETS[kind], num_workers=2)
    ring, stock = (functools.partial(workers, engine=engine) for engine in ("ring", "stock"))
    assert_resumes(ring, Stop(1, 3), stock)


@pytest.mark.parametrize("kind", ["iterator", "its own"])
def test_a_dataset_that_saves_its_state_reads_no_sample_twice(kind: str) -> None:
    loader = make(DATASETS[kind])
    iterator = iter(loader)
    next(iterator), next(iterator)
    state = loader.state_dict()
    resumed = make(DATASETS[kind])
    resumed.load_state_dict(state)
    made.clear()
    list(resumed)
    assert made == [4, 5, 6, 7, 8]


def test_another_number_of_workers_is_refused() -> None:
    loader = make(Plain, num_workers=2)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(UsageError, match="num_workers=2 and this loader has num_workers=1"):
        make(Plain, num_workers=1).load_state_dict(loader.state_dict())


def test_a_tuned_loader_can_be_saved_between_epochs_only() -> None:
    loader = make(Plain, autotune=True)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(UsageError, match="autotune changes the number of workers"):
        loader.state_dict()
    list(iterator)
    assert loader.state_dict()["epoch"] is None


class CannotSave(SavesIterator):
    def state_dict(self) -> dict[str, Any]:
        raise RuntimeError("no state today")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise AssertionError("there is none")


def test_a_worker_that_cannot_save_its_dataset_goes_on_and_says_so() -> None:
    loader = make(CannotSave, num_workers=1)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(UsageError, match="no state today"):
        loader.state_dict()
    assert len(list(iterator)) == 4
