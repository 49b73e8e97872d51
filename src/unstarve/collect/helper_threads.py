"""CPU time that other threads spend on a fetch: a dataset may have a pool of threads.

In a worker all threads work for its batches, except the one that sends them. In a training process some may
be training: threads of torch that spin after a step, a checkpoint that is compressed meanwhile. There, now
and then, the CPU clock of every thread is read at the end of one fetch and around the next one: a thread that
is about as busy between fetches as during them does not work for them.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import get_native_id
from typing import NamedTuple

_MUCH_NS = 1_000_000
"""In a training process: shorter fetches are not looked at, and less help than this is not reported."""
_WATCHED_AFTER_LONG = 16
"""Fetches that are still watched after a long one."""
_CENSUS_EVERY = 16
"""Fetches with help from other threads; at first more often."""
_WINDING_DOWN_NS = 100_000
"""A thread may run this long after its work for a fetch."""
_ABOUT = 0.5
_TASKS = "/proc/self/task"

_WORKER_EVERY_NS = 5_000_000
_WORKER_MUCH = 0.1
"""Share of the time that other threads of a worker must compute to be reported."""


class WorkerHelpers:
    """CPU time of a worker's other threads, without what it takes to send its batches or to watch it."""

    def __init__(self, watching_s: Callable[[], float] = lambda: 0.0) -> None:
        self._watching_s = watching_s
        """What the stack sampler's thread has used so far."""
        self.sending = False
        """A thread of the worker's queue is sending a batch at the moment."""
        self.sent_cpu_ns = 0
        """What sending has cost so far, without the batch that is being sent."""
        self._asked_ns = 0
        self._spent_ns = 0
        self._busy = False

    def begin(self) -> None:
        """A fetch begins. Nothing to do: all that other threads compute is for some fetch."""

    def end(self, now_ns: int) -> int:
        """A fetch is over: what other threads computed since the last reading; 0 where that is little.

        The CPU clock of a process is not cheap: it is read now and then while they are idle, and always while
        they are busy.
        """
        since_ns = now_ns - self._asked_ns
        if self.sending or (since_ns < _WORKER_EVERY_NS and not self._busy):
            return 0
        spent_ns = others_ns() - self.sent_cpu_ns - round(self._watching_s() * 1e9)
        computed_ns = spent_ns - self._spent_ns
        self._busy = self._asked_ns > 0 and computed_ns > _WORKER_MUCH * since_ns
        self._asked_ns, self._spent_ns = now_ns, spent_ns
        return computed_ns if self._busy else 0


class Census(NamedTuple):
    """Every thread of this process at one moment."""

    wall_ns: int
    cpu_ns: dict[int, int]
    """By the kernel's number of the thread."""


def look() -> Census | None:
    """All threads now; None where /proc does not list them."""
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
    # In another PID namespace's /proc the numbers belong to other threads.
    return Census(time.perf_counter_ns(), cpu_ns) if get_native_id() in cpu_ns else None


def _cpu_clock(thread: int) -> int:
    """Linux's number of a thread's CPU clock, as ``pthread_getcpuclockid`` makes it."""
    return ~thread << 3 | 6


def foreign_ns(after_last: Census, before: Census, after: Census, own: int) -> int:
    """CPU time during a fetch of threads that do not work for fetches; `own` is the thread that fetches.

    A thread that has ended by the end of the fetch worked for it.
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
    """CPU time of other threads for the fetches that a training process does itself."""

    def __init__(self, look: Callable[[], Census | None] = look) -> None:
        self._look = look
        self._left = self._looks = self._until_look = 0
        self._begin_ns = self._others_ns = 0
        self._after_last: Census | None = None
        self._before: Census | None = None
        self._foreign = self._last_found = 1.0
        """Share of the other threads' CPU time that is not for the fetch: the larger one of the last two
        censuses, and 1 until then."""

    def begin(self) -> None:
        """A fetch begins."""
        if self._left:
            self._before = None if self._after_last is None else self._look()
            self._others_ns = others_ns()
        self._begin_ns = time.perf_counter_ns()

    def end(self, now_ns: int) -> int:
        """The fetch is over: nanoseconds that other threads computed for it; 0 if that is little."""
        if now_ns - self._begin_ns < _MUCH_NS:
            if self._left:
                self._left -= 1
                self._after_last = None
            return 0
        was_asked, self._left = self._left > 0, _WATCHED_AFTER_LONG
        helped_ns = others_ns() - self._others_ns if was_asked else 0
        if helped_ns < _MUCH_NS:
            self._after_last = None
            return 0
        self._take_census(helped_ns)
        told_ns = round(helped_ns * (1 - self._foreign))
        return told_ns if told_ns >= _MUCH_NS else 0

    def _take_census(self, helped_ns: int) -> None:
        self._until_look -= 1
        if self._before is not None and self._after_last is not None:
            after = self._look()
            if after is not None:
                others = foreign_ns(self._after_last, self._before, after, get_native_id())
                found = min(others / helped_ns, 1.0)
                self._foreign, self._last_found = max(found, self._last_found), found
            self._after_last = None
            self._looks += 1
            self._until_look = min(self._looks, _CENSUS_EVERY)
        elif self._until_look <= 0:
            self._after_last = self._look()


_RELISTED_EVERY = 32
"""Fetches after which new threads of a loader are looked for."""


class NamedThreads:
    """CPU time of threads that a library has made for loading alone, and that it names: DALI does."""

    def __init__(self, prefixes: tuple[str, ...]) -> None:
        self._prefixes = prefixes
        self._threads: list[int] = []
        self._until_listed = self._before_ns = 0

    def begin(self) -> None:
        """A fetch begins."""
        if self._until_listed == 0:
            self._until_listed, self._threads = _RELISTED_EVERY, self._listed()
        self._until_listed -= 1
        self._before_ns = self._spent_ns()

    def end(self, now_ns: int) -> int:
        """The fetch is over: nanoseconds that these threads have computed meanwhile."""
        return max(self._spent_ns() - self._before_ns, 0)

    def _listed(self) -> list[int]:
        found: list[int] = []
        with contextlib.suppress(OSError):  # no /proc, or a thread has just ended
            tasks = Path(_TASKS).iterdir()
            found.extend(int(t.name) for t in tasks if (t / "comm").read_text().startswith(self._prefixes))
        return found

    def _spent_ns(self) -> int:
        try:
            return sum(time.clock_gettime_ns(_cpu_clock(thread)) for thread in self._threads)
        except OSError:  # one of them has ended
            self._until_listed, self._threads = 0, []
            return 0


def others_ns() -> int:
    """CPU time of this process's other threads so far."""
    return time.process_time_ns() - time.thread_time_ns()
