"""What a training process's other threads compute for a fetch: a dataset may have a pool of its own.

In a worker all of them work for the batch. Here some may be training itself: threads of torch that spin after
a step, a checkpoint that is compressed beside it. So, now and then, every thread's CPU clock is read at the
end of one fetch and around the next: who is about as busy between fetches as in them does not work for them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from threading import get_native_id
from typing import NamedTuple

_MUCH_NS = 1_000_000
"""Shorter fetches are not asked about, and less than this is not told."""
_ASK_ON = 16
"""Fetches that are still watched after a long one."""
_LOOK_EVERY = 16
"""Of the fetches that other threads compute beside; at first more often."""
_WINDING_DOWN_NS = 100_000
"""A thread may run this long after what it did for a fetch."""
_ABOUT = 0.5
_TASKS = "/proc/self/task"


class Census(NamedTuple):
    """Every thread of this process at one moment."""

    wall_ns: int
    cpu_ns: dict[int, int]
    """By the kernel's number of the thread."""


def look() -> Census | None:
    """All threads now; None where the system does not tell."""
    try:
        threads = [int(name) for name in os.listdir(_TASKS)]  # noqa: PTH208 - a Path each would cost more
    except OSError:
        return None
    cpu_ns = {}
    for thread in threads:
        try:
            cpu_ns[thread] = time.clock_gettime_ns(_cpu_clock(thread))
        except OSError:  # it has ended
            continue
    # Where /proc is another namespace's, its numbers are other threads'.
    return Census(time.perf_counter_ns(), cpu_ns) if get_native_id() in cpu_ns else None


def _cpu_clock(thread: int) -> int:
    """Linux's number of a thread's CPU clock, as ``pthread_getcpuclockid`` makes it."""
    return ~thread << 3 | 6


def foreign_ns(after_last: Census, before: Census, after: Census, own: int) -> int:
    """What other threads than `own` that do not work for fetches have computed during one.

    A thread that is gone by its end was there for its sake alone.
    """
    fetched_ns = max(after.wall_ns - before.wall_ns, 1)
    between_ns = max(before.wall_ns - after_last.wall_ns, 1)
    found = 0
    for thread in before.cpu_ns.keys() & after.cpu_ns.keys() - {own}:
        inside = after.cpu_ns[thread] - before.cpu_ns[thread]
        outside = before.cpu_ns[thread] - after_last.cpu_ns.get(thread, before.cpu_ns[thread])
        if (outside - _WINDING_DOWN_NS) / between_ns >= _ABOUT * inside / fetched_ns:
            found += inside
    return found


class TrainingHelpers:
    """Asked before and after every fetch that a training process does itself."""

    def __init__(self, look: Callable[[], Census | None] = look) -> None:
        self._look = look
        self._left = self._looks = self._until_look = 0
        self._begin_ns = self._others_ns = 0
        self._after_last: Census | None = None
        self._before: Census | None = None
        self._foreign = self._last_found = 1.0
        """The share of what others compute that is not for the fetch: the larger one of the last two looks,
        and all of it until then."""

    def begin(self) -> None:
        """A fetch begins."""
        if self._left:
            self._before = None if self._after_last is None else self._look()
            self._others_ns = others_ns()
        self._begin_ns = time.perf_counter_ns()

    def end(self, now_ns: int) -> int:
        """The fetch is over: nanoseconds that other threads have computed for it; 0 if that is not much."""
        if now_ns - self._begin_ns < _MUCH_NS:
            if self._left:
                self._left -= 1
                self._after_last = None
            return 0
        was_asked, self._left = self._left > 0, _ASK_ON
        helped_ns = others_ns() - self._others_ns if was_asked else 0
        if helped_ns < _MUCH_NS:
            self._after_last = None
            return 0
        self._look_around(helped_ns)
        told_ns = round(helped_ns * (1 - self._foreign))
        return told_ns if told_ns >= _MUCH_NS else 0

    def _look_around(self, helped_ns: int) -> None:
        self._until_look -= 1
        if self._before is not None and self._after_last is not None:
            after = self._look()
            if after is not None:
                others = foreign_ns(self._after_last, self._before, after, get_native_id())
                found = min(others / helped_ns, 1.0)
                self._foreign, self._last_found = max(found, self._last_found), found
            self._after_last = None
            self._looks += 1
            self._until_look = min(self._looks, _LOOK_EVERY)
        elif self._until_look <= 0:
            self._after_last = self._look()


def others_ns() -> int:
    """CPU time of this process's other threads so far."""
    return time.process_time_ns() - time.thread_time_ns()
