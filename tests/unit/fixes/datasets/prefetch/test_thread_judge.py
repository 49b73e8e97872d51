"""Threads are used where fetches wait; where they compute, that is said and threads are not used."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from torch.utils.data import DataLoader

from prefetch_sources import Computing, Waiting, no_threads, until
from unstarve import AsyncPrefetchDataset
from unstarve.fixes.datasets.prefetch import thread_judge as judge_module
from unstarve.fixes.datasets.prefetch.thread_judge import FetchMode, FetchTime, ThreadJudge


def probed(monkeypatch: pytest.MonkeyPatch, *fetches: FetchTime) -> ThreadJudge:
    """A judge that saw these fetches."""
    seen = iter(fetches)

    def timed(fetch: Callable[[], Any]) -> tuple[Any, FetchTime]:
        return fetch(), next(seen)

    monkeypatch.setattr(judge_module, "timed", timed)
    judge = ThreadJudge(threads=4)
    for _ in fetches:
        assert judge.mode is FetchMode.PROBE
        assert judge.probe(lambda: "sample") == "sample"
    return judge


def test_one_fetch_that_clearly_waits_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = probed(monkeypatch, FetchTime(10e-3, 0.2e-3))
    assert (judge.mode, judge.why) == (FetchMode.THREADS, "98% of a fetch of 10.0 ms is waiting")


def test_time_without_a_cpu_is_not_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    crowded = FetchTime(10e-3, 2e-3, queued_s=7.9e-3)
    judge = probed(monkeypatch, *[crowded] * 4)
    assert judge.mode is FetchMode.TRIAL


def test_a_first_fetch_that_computes_may_be_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = probed(monkeypatch, FetchTime(50e-3, 50e-3), *[FetchTime(4e-3, 0.4e-3)] * 3)
    assert (judge.mode, judge.why) == (FetchMode.THREADS, "90% of a fetch of 4.00 ms is waiting")


def test_short_fetches_that_compute_are_not_even_tried_with_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = probed(monkeypatch, *[FetchTime(20e-6, 20e-6)] * 16)
    assert (judge.mode, judge.why) == (FetchMode.INLINE, "100% of a fetch of 20.0 µs is computing")


@pytest.mark.parametrize(
    ("wall_s", "mode", "why"),
    [
        (
            20e-3,
            FetchMode.THREADS,
            "100% of a fetch of 4.00 ms is computing, but 4 threads are 2.0× as fast as none",
        ),
        (
            50e-3,
            FetchMode.INLINE,
            "100% of a fetch of 4.00 ms is computing, and 4 threads are 0.80× as fast as none",
        ),
    ],
)
def test_long_ones_are_tried(
    monkeypatch: pytest.MonkeyPatch, wall_s: float, mode: FetchMode, why: str
) -> None:
    judge = probed(monkeypatch, *[FetchTime(4e-3, 4e-3)] * 4)
    assert judge.mode is FetchMode.TRIAL
    judge.tried(wall_s, fetches=10)
    assert (judge.mode, judge.why) == (mode, why)


def test_threads_that_keep_a_core_busy_are_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    judge = probed(monkeypatch, FetchTime(10e-3, 0.2e-3))
    now = 101.5
    judge.used_threads(cpu_s=0.1)
    assert judge.mode is FetchMode.THREADS
    now = 103.0
    judge.used_threads(cpu_s=1.4)
    assert judge.mode is FetchMode.PROBE


def takes(monkeypatch: pytest.MonkeyPatch, fetch: FetchTime) -> None:
    """From now on every fetch that is timed took this much."""
    monkeypatch.setattr(judge_module, "timed", lambda get: (get(), fetch))


def test_computing_in_python_is_said_once_and_done_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    takes(monkeypatch, FetchTime(5e-4, 5e-4))
    source = Computing(60, wait_s=5e-4)
    dataset = AsyncPrefetchDataset(source, queue_size=8, num_workers=4)
    assert dataset.explain() == "measuring: nothing was fetched yet"
    loader = DataLoader(dataset, batch_size=6, shuffle=True)
    with pytest.warns(RuntimeWarning, match=r"without threads: \d+% of a fetch of .* is computing") as warned:
        batches = [*loader, *loader]
    assert len(warned) == 1
    assert len(batches) == 20
    assert dataset.explain().startswith("no threads: ")
    until(no_threads, "the threads of the trial ended")
    source.threads.clear()
    assert len([*loader]) == 10
    assert len(source.threads) == 1


def test_fetches_that_begin_to_wait_get_threads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    takes(monkeypatch, FetchTime(1e-4, 1e-4))
    source = Computing(64, wait_s=1e-4)
    dataset = AsyncPrefetchDataset(source, queue_size=8, num_workers=4)
    with pytest.warns(RuntimeWarning):
        dataset.__getitems__([*range(40)])
    source.__class__ = Waiting
    source.wait_s = 2e-3
    takes(monkeypatch, FetchTime(2e-3, 1e-5))
    for _ in range(20):
        dataset.__getitems__([*range(8)])
    assert dataset.explain().startswith("4 threads: ")
    dataset.close()
    until(no_threads, "the threads ended")
