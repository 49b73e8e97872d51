"""A source that is read in order is read ahead by one thread, and comes out in the same order."""

from __future__ import annotations

import gc
import os
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from prefetch_sources import Stream, no_threads, until
from unstarve import AsyncPrefetchDataset
from unstarve.fixes.datasets.prefetch import fetch_threads as reader
from unstarve.fixes.datasets.prefetch import prefetch_dataset as stream
from unstarve.fixes.datasets.prefetch.thread_judge import FetchTime


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    if not no_threads():
        gc.collect()
    until(no_threads, "all threads ended")


def numbers(batches: Any) -> list[int]:
    return [int(number) for batch in batches for number in batch.reshape(-1)]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("queue_size", [0, 1, 7, 100])
def test_a_loader_gives_the_same_items_in_the_same_order(queue_size: int, workers: int) -> None:
    dataset = AsyncPrefetchDataset(Stream(), queue_size=queue_size)
    assert isinstance(dataset, IterableDataset)
    loader = DataLoader(dataset, batch_size=3, num_workers=workers)
    assert numbers(loader) == [*range(40)]
    assert numbers(loader) == [*range(40)]


def test_no_more_is_read_ahead_than_the_queue_holds() -> None:
    source = Stream(None)
    iterator = iter(AsyncPrefetchDataset(source, queue_size=5))
    for given in range(1, 30):
        assert next(iterator) == given - 1
        until(lambda given=given: source.made == given + 5, "the queue is full")  # type: ignore[misc] # mypy wants a lambda without defaults


def test_one_iteration_is_read_by_one_thread() -> None:
    source = Stream()
    assert numbers(AsyncPrefetchDataset(source)) == [*range(40)]
    assert len(set(source.threads)) == 1
    assert threading.get_ident() not in source.threads


def test_an_error_is_raised_at_its_item_and_ends_the_iteration() -> None:
    iterator = iter(AsyncPrefetchDataset(Stream(bad=20)))
    assert numbers(next(iterator) for _ in range(20)) == [*range(20)]
    with pytest.raises(OSError, match="item 20 is damaged"):
        next(iterator)
    assert [*iterator] == []


def test_an_abandoned_iteration_leaves_no_thread() -> None:
    dataset = AsyncPrefetchDataset(Stream(None))
    for _ in DataLoader(dataset, batch_size=2):
        break
    until(no_threads, "the thread ended")


def takes(monkeypatch: pytest.MonkeyPatch, fetch: FetchTime) -> None:
    """From now on every item that is timed took this much."""
    for module in (reader, stream):
        monkeypatch.setattr(module, "timed", lambda get: (get(), fetch))


def test_items_that_are_computed_faster_than_handed_over_are_read_without_a_thread_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    takes(monkeypatch, FetchTime(1e-4, 1e-4))
    source = Stream(40)
    dataset = AsyncPrefetchDataset(source)
    with pytest.warns(RuntimeWarning, match="without a thread: .*% of the .* per item is computing"):
        assert numbers(dataset) == [*range(40)]
    source.threads.clear()
    assert numbers(dataset) == [*range(40)]
    assert set(source.threads) == {threading.get_ident()}
    assert dataset.explain().startswith("no thread: ")


def test_items_that_begin_to_be_waited_for_are_read_by_a_thread_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    takes(monkeypatch, FetchTime(1e-4, 1e-4))
    dataset = AsyncPrefetchDataset(Stream(40))
    with pytest.warns(RuntimeWarning):
        numbers(dataset)
    takes(monkeypatch, FetchTime(1e-4, 1e-5))
    assert numbers(dataset) == numbers(dataset) == [*range(40)]
    assert dataset.explain().startswith("a reading thread: ")


class Sharded(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = get_worker_info()
        assert worker is not None
        yield from torch.arange(worker.id, 12, worker.num_workers)

    def __len__(self) -> int:
        return 12


@pytest.mark.filterwarnings("ignore:AsyncPrefetchDataset will read without a thread")
def test_workers_read_their_own_shares() -> None:
    dataset = AsyncPrefetchDataset(Sharded(), queue_size=2)
    assert sorted(numbers(DataLoader(dataset, batch_size=2, num_workers=2))) == [*range(12)]
    assert len(DataLoader(dataset, batch_size=2)) == 6


def test_it_has_a_length_only_where_its_source_has_one() -> None:
    with pytest.raises(TypeError):
        len(AsyncPrefetchDataset(Stream()))


def test_it_has_no_samples_by_index_and_can_be_pickled() -> None:
    dataset = pickle.loads(pickle.dumps(AsyncPrefetchDataset(Sharded(), queue_size=3)))
    assert (isinstance(dataset, IterableDataset), dataset.queue_size) == (True, 3)
    with pytest.raises(TypeError, match="Sharded is an IterableDataset"):
        dataset[3]


def test_an_iteration_does_not_cross_a_fork() -> None:
    iterator = iter(AsyncPrefetchDataset(Stream(None)))
    next(iterator)
    child = os.fork()
    if child == 0:
        try:
            next(iterator)
        except RuntimeError as error:
            os._exit(7 if "begin a new one" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert next(iterator) == 1
