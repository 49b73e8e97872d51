"""Which threads make the batches of the engine `threads`, and how long those threads live."""

from __future__ import annotations

import gc
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from thread_rows import COUNT, Rows, Split, ours, reading_threads
from unstarve.fixes.loader.engines import read_ahead, thread_iterator
from unstarve.fixes.loader.engines.read_ahead import THREADS, ReadAheadPace


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
