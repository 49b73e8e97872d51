"""Samples that are coroutines are awaited in one event loop, as many at a time as there are workers."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from prefetch_sources import Awaited, GivesCoroutines, no_threads, until
from unstarve import AsyncPrefetchDataset


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    if not no_threads():
        gc.collect()
    until(no_threads, "all threads ended")


def numbers(batches: Any) -> list[list[int]]:
    return [batch[..., 0].reshape(-1).tolist() for batch in batches]


WRAPPED = {"async def": lambda source: source, "returned": GivesCoroutines}


@pytest.mark.parametrize("kind", WRAPPED)
def test_coroutines_are_awaited_side_by_side_in_the_samplers_order(kind: str) -> None:
    source = Awaited(40)
    dataset = AsyncPrefetchDataset(WRAPPED[kind](source), queue_size=12, num_workers=5)
    torch.manual_seed(0)
    loader = DataLoader(dataset, batch_size=4, shuffle=True)
    epochs = [numbers(loader), numbers(loader)]
    torch.manual_seed(0)
    plain = DataLoader(torch.arange(40)[:, None], batch_size=4, shuffle=True)  # type: ignore[arg-type] # a tensor is a dataset
    assert epochs == [numbers(plain), numbers(plain)]
    assert source.most == 5
    assert len(source.loops) == 1  # a session that was opened in the first epoch works in the second
    assert "coroutines" in dataset.explain()


@pytest.mark.parametrize("kind", WRAPPED)
def test_an_error_is_raised_at_its_sample(kind: str) -> None:
    dataset = AsyncPrefetchDataset(WRAPPED[kind](Awaited(12, bad=6)), queue_size=8, num_workers=4)
    iterator = iter(DataLoader(dataset, batch_size=4))
    assert numbers([next(iterator)]) == [[0, 1, 2, 3]]
    with pytest.raises(OSError, match="sample 6 is damaged"):
        next(iterator)
    assert numbers(iterator) == [[8, 9, 10, 11]]


def test_plain_access_and_loops_give_samples() -> None:
    dataset = AsyncPrefetchDataset(Awaited(9), queue_size=4, num_workers=4)
    assert dataset[7].tolist() == [7, 0]
    assert numbers(dataset) == [[i] for i in range(9)]


def test_whole_batches_can_be_coroutines_too() -> None:
    class Query(Dataset[Any]):
        def __len__(self) -> int:
            return 12

        async def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
            return [torch.tensor([i]) for i in indices]

    dataset = AsyncPrefetchDataset(Query(), queue_size=8, num_workers=2)
    assert numbers(DataLoader(dataset, batch_size=5)) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]


def test_an_abandoned_iteration_awaits_nothing_more() -> None:
    source = Awaited(400)
    dataset = AsyncPrefetchDataset(source, queue_size=390, num_workers=2)
    for _ in DataLoader(dataset, batch_size=2, shuffle=True):
        break
    until(no_threads, "the thread ended")
    assert len(source.fetched) < 390
    assert numbers(DataLoader(dataset, batch_size=200)) == [[*range(200)], [*range(200, 400)]]


def _child(dataset: Any, answers: Any) -> None:
    answers.put(numbers(dataset.__getitems__([3, 1])))
    del dataset


def test_a_fork_has_a_loop_of_its_own_and_leaves_the_parents_alone() -> None:
    dataset = AsyncPrefetchDataset(Awaited(), queue_size=4, num_workers=2)
    assert numbers(dataset.__getitems__([1, 2])) == [[1], [2]]
    dataset.__getitems__([5])
    until(no_threads, "the thread ended, the loop is kept")
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_child, args=(dataset, answers))
    child.start()
    assert answers.get(timeout=180) == [[3], [1]]
    child.join(180)
    assert child.exitcode == 0
    assert numbers(dataset.__getitems__([7, 8])) == [[7], [8]]


def test_closing_ends_the_loop_and_the_next_access_makes_another() -> None:
    source = Awaited()
    dataset = AsyncPrefetchDataset(source)
    dataset[1]
    dataset.close()
    until(no_threads, "the thread ended")
    assert dataset[2].tolist() == [2, 0]
