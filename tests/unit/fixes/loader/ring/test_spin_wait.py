"""Who waits for a message looks for as long as looking is worth it, and hears of every message once."""

from __future__ import annotations

import multiprocessing
import queue
import threading
from collections.abc import Callable

import pytest

from unstarve.fixes.loader.ring import ring_queue
from unstarve.fixes.loader.ring.ring_queue import Bell, RingQueue, SpinWait

CONTEXT = multiprocessing.get_context("fork")
STEP_S = ring_queue._SPIN_S / 10


class FakeTime:
    """Passes only while somebody pauses."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses = 0

    def pause(self) -> None:
        self.pauses += 1
        self.now_s += STEP_S

    def give_way(self) -> None:
        """Somebody else takes the core for a while."""
        self.pauses += 1
        self.now_s += 2 * ring_queue._YIELD_S

    def after(self, wait_s: float) -> Callable[[], bool]:
        """What is there once so much time has passed."""
        end_s = self.now_s + wait_s
        return lambda: self.now_s >= end_s

    def spin(self) -> SpinWait:
        return SpinWait(lambda: self.now_s, self.pause)


def never() -> bool:
    return False


def test_what_comes_soon_is_seen() -> None:
    time = FakeTime()
    spin = time.spin()
    for _ in range(5):
        assert spin.succeeds(time.after(2.5 * STEP_S))
    assert time.pauses == 15


def test_a_look_ends_soon_when_nothing_comes() -> None:
    time = FakeTime()
    assert not time.spin().succeeds(never)
    assert time.now_s == pytest.approx(ring_queue._SPIN_S, abs=2 * STEP_S)


def looks(time: FakeTime, spin: SpinWait, waits: int) -> list[int]:
    """The numbers of those waits, all in vain, in which there was a look at all."""
    found = []
    for wait in range(waits):
        before = time.pauses
        assert not spin.succeeds(never)
        if time.pauses > before:
            found.append(wait)
    return found


def test_looks_in_vain_become_rare() -> None:
    time = FakeTime()
    assert looks(time, time.spin(), 40) == [0, 2, 5, 10, 19, 36]


def test_they_become_no_rarer_than_that() -> None:
    time = FakeTime()
    spin = time.spin()
    looks(time, spin, 4 * ring_queue._MAX_SKIP)
    assert len(looks(time, spin, 2 * (ring_queue._MAX_SKIP + 1))) == 2


def test_where_others_have_work_nobody_looks_for_long() -> None:
    time = FakeTime()
    spin = SpinWait(lambda: time.now_s, time.give_way)
    assert not spin.succeeds(time.after(STEP_S))
    assert time.pauses == 1
    assert looks(time, spin, ring_queue._SKIP_WHEN_SHARED) == []
    assert looks(time, spin, 1) == [0]


def test_a_look_that_was_worth_it_brings_the_next_ones_back() -> None:
    time = FakeTime()
    spin = time.spin()
    assert looks(time, spin, 36) == [0, 2, 5, 10, 19]
    assert spin.succeeds(time.after(STEP_S))
    assert looks(time, spin, 4) == [0, 2]


@pytest.mark.parametrize("patient", [False, True])
def test_every_ring_is_heard_once(patient: bool) -> None:
    its = Bell(CONTEXT)
    its.spin = SpinWait() if patient else None
    assert not its.heard(0)
    its.ring()
    its.ring()
    assert its.heard(60)
    assert its.heard(None)
    assert not its.heard(0)
    assert not its.heard(0.001)


def test_a_thread_beside_the_one_that_trains_does_not_look() -> None:
    its, time = Bell(CONTEXT), FakeTime()
    its.spin = time.spin()
    thread = threading.Thread(target=its.heard, args=(0.001,))
    thread.start()
    thread.join()
    assert time.pauses == 0
    assert not its.heard(0.001)
    assert time.pauses > 0


def test_a_message_of_somebody_who_was_killed_before_ringing_is_found() -> None:
    q = RingQueue(ctx=CONTEXT)
    q.put("rung")
    assert q.bell.heard(0)
    assert q.get(timeout=0.001) == "rung"
    q.put("next")
    assert q.get(timeout=60) == "next"


def test_a_bell_ahead_of_its_message_is_waited_for_and_not_forgotten() -> None:
    q = RingQueue(ctx=CONTEXT)
    q.bell.ring()
    for timeout in (0, 0.001):
        with pytest.raises(queue.Empty):
            q.get(timeout=timeout)
    assert q.bell.heard(0)
    q.put("there")
    assert q.get(timeout=60) == "there"
