"""In a training process, only threads that compute for fetches, and not beside them, are told of."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from unstarve.collect import helper_threads as training_helpers
from unstarve.collect.helper_threads import Census, NamedThreads, TrainingHelpers, foreign_ns, look

MS = 1_000_000
OWN = 1


def test_a_thread_that_is_as_busy_between_fetches_does_not_work_for_them() -> None:
    pool, spinning, resting = 7, 8, 9
    after_last = Census(0, {OWN: 0, pool: 0, spinning: 0, resting: 5 * MS})
    before = Census(4 * MS, {OWN: 3 * MS, pool: 50_000, spinning: 4 * MS, resting: 5 * MS})
    after = Census(14 * MS, {OWN: 4 * MS, pool: 9 * MS, spinning: 12 * MS, resting: 5 * MS})
    assert foreign_ns(after_last, before, after, OWN) == 8 * MS


def test_threads_that_come_and_go_with_a_fetch_work_for_it() -> None:
    after_last, before = Census(0, {OWN: 0}), Census(4 * MS, {OWN: 0})
    after = Census(14 * MS, {OWN: 0, 5: 6 * MS})  # and others that have ended by now
    assert foreign_ns(after_last, before, after, OWN) == 0


class Machine:
    """Fetches and steps on clocks that a test moves: one thread besides the fetching one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_ns = self.other_ns = self.looks = 0
        monkeypatch.setattr(training_helpers, "others_ns", self._others)
        monkeypatch.setattr(training_helpers, "time", SimpleNamespace(perf_counter_ns=lambda: self.wall_ns))
        self.asked = 0
        self.helpers = TrainingHelpers(self._look)

    def _others(self) -> int:
        self.asked += 1
        return self.other_ns

    def _look(self) -> Census | None:
        self.looks += 1
        return Census(self.wall_ns, {7: self.other_ns})

    def _spend(self, wall_ms: float, other_ms: float) -> None:
        self.wall_ns += round(wall_ms * MS)
        self.other_ns += round(other_ms * MS)

    def step(self, *, fetch_ms: float, helped_ms: float, beside_ms: float = 0.0) -> float:
        """What a fetch is told to have been helped by, and a step of 10 ms behind it."""
        self.helpers.begin()
        self._spend(fetch_ms, helped_ms)
        told_ms = self.helpers.end(self.wall_ns) / MS
        self._spend(10, beside_ms)
        return told_ms


def test_what_a_pool_computes_for_a_fetch_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    told = [machine.step(fetch_ms=20, helped_ms=15) for _ in range(40)]
    assert told[5:] == [15] * 35
    assert machine.looks < 40


def test_what_is_computed_beside_training_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    assert [machine.step(fetch_ms=20, helped_ms=20, beside_ms=10) for _ in range(40)] == [0] * 40


def test_a_look_that_contradicts_the_one_before_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    told = [machine.step(fetch_ms=20, helped_ms=20, beside_ms=10 * (n % 4 > 1)) for n in range(6)]
    assert told == [0] * 6


def test_short_fetches_are_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    assert [machine.step(fetch_ms=0.9, helped_ms=0.9) for _ in range(9)] == [0] * 9
    assert machine.asked == machine.looks == 0
    machine.step(fetch_ms=20, helped_ms=0)
    for _ in range(100):
        machine.step(fetch_ms=0.9, helped_ms=0)
    assert machine.asked == 16  # long ones may come back; then they are given up


def test_where_threads_are_not_told_apart_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.helpers = TrainingHelpers(lambda: None)
    assert [machine.step(fetch_ms=20, helped_ms=15) for _ in range(20)] == [0] * 20


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="Linux tells of threads there")
def test_a_look_sees_every_thread_and_what_it_has_computed() -> None:
    end = threading.Event()
    other = threading.Thread(target=end.wait)
    other.start()
    before, own = time.thread_time_ns(), threading.get_native_id()
    try:
        census = look()
    finally:
        end.set()
        other.join()
    assert census is not None
    assert {own, other.native_id} <= census.cpu_ns.keys()
    assert before <= census.cpu_ns[own] <= time.thread_time_ns()


def test_threads_of_a_library_are_known_by_their_names() -> None:
    begin, done, threads = threading.Event(), threading.Event(), []

    def compute() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("[DALI][TP0]")
        threads.append(threading.get_native_id())
        begin.wait()
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
        done.set()
        end.wait()

    end = threading.Event()
    worker = threading.Thread(target=compute)
    worker.start()
    while not threads:
        time.sleep(0.001)
    named, others = NamedThreads(("[DALI]",)), NamedThreads(("[other]",))
    named.begin()
    others.begin()
    begin.set()
    done.wait()
    assert named.end(0) >= 20 * MS
    assert others.end(0) == 0
    end.set()
    worker.join()
    named.begin()  # it has ended: nothing is known of it, and nothing fails
    assert named.end(0) == 0
