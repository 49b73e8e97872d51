"""Threads that a dataset starts before the fork."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import Any

import pytest
from tests.helpers.checked import findings, ids
from torch.utils.data import DataLoader, Dataset


class Pooled(Dataset[Any]):
    def __init__(self, pool: Any) -> None:
        self.pool = pool

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return self.pool.submit(abs, index).result()


class Fed(Dataset[Any]):
    """A thread puts samples into a queue."""

    def __init__(self, stop: threading.Event) -> None:
        self.queue: queue.Queue[int] = queue.Queue()
        self.feeder = threading.Thread(target=stop.wait, daemon=True)
        self.feeder.start()

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return self.queue.get(), self.feeder.name


class Revived(Fed):
    def __getitem__(self, index: int) -> Any:
        if not self.feeder.is_alive():
            self.feeder = threading.Thread(target=print)
        return super().__getitem__(index)


@pytest.fixture
def stop() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_pool_that_has_run_is_found() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert ids(DataLoader(Pooled(pool), num_workers=1)) == []  # it starts its threads in the worker
        pool.submit(abs, 1).result()
        (found,) = findings(DataLoader(Pooled(pool), num_workers=1))
        assert found.id == "fork-after-threads"
        assert "train_set.pool is a ThreadPoolExecutor with 1 thread." in found.message
        assert ids(DataLoader(Pooled(pool))) == []
    assert ids(DataLoader(Pooled(pool), num_workers=1)) == []


def test_a_pool_with_an_idle_thread_starts_no_other_and_is_found() -> None:
    with ThreadPoolExecutor(2) as pool:
        pool.submit(abs, 1).result()
        while not pool._idle_semaphore._value:  # its thread has yet to see that nothing is left to do
            time.sleep(0.001)
        assert ids(DataLoader(Pooled(pool), num_workers=1)) == ["fork-after-threads"]


def test_a_pool_that_can_start_another_thread_is_left_alone(stop: threading.Event) -> None:
    with ThreadPoolExecutor(2) as pool:
        pool.submit(stop.wait)
        assert ids(DataLoader(Pooled(pool), num_workers=1)) == []
        stop.set()


def test_other_pools_and_feeding_threads_are_found(stop: threading.Event) -> None:
    with ThreadPool(1) as pool:
        assert ids(DataLoader(Pooled(pool), num_workers=1)) == ["fork-after-threads"]
    assert ids(DataLoader(Fed(stop), num_workers=1)) == ["fork-after-threads"]


def test_threads_that_are_started_again_or_not_the_datasets_are_left_alone(stop: threading.Event) -> None:
    assert ids(DataLoader(Revived(stop), num_workers=1)) == []
    thread = threading.Thread(target=stop.wait)  # such as a progress bar's
    thread.start()
    assert ids(DataLoader(Pooled(None), num_workers=1)) == []
    stop.set()
    thread.join()
