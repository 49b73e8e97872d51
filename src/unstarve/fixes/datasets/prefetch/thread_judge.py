"""Whether threads help with a dataset, by measurement.

Threads help if a fetch waits: for a disk, a network, a database. If it computes in Python, threads take
turns, and passing samples between them makes it slower. The first fetches are timed without threads. If they
hardly wait, a few more are timed with threads, because compiled code may run in several at once.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from statistics import median
from typing import Any, TypeVar

from torch.utils.data import get_worker_info

from unstarve import words

T = TypeVar("T")

_WAITS_BELOW = 0.7
"""A fetch with a lower CPU share waits enough for threads to pay off."""

_SURELY_WAITS_BELOW = 0.5
_GAIN_FROM = 1.25
"""Threads must be this many times as fast as none."""

_MIN_TRIAL_S = 250e-6
"""Passing shorter computing fetches between threads costs more than several cores could gain."""

_BETWEEN_LOOKS_S = 20e-3
"""How often a fetch without threads is timed, to notice when fetches begin to wait; timing takes 40 µs."""

_LOOK_AT_S = 5e-3
"""How much fetch time is judged together, but never more than `_LOOKS` fetches."""

_LOOKS = 16


class FetchMode(Enum):
    """How samples are fetched now."""

    PROBE = "one by one, timed"
    TRIAL = "with threads, timed"
    THREADS = "with threads"
    INLINE = "without threads"


@dataclass(frozen=True)
class FetchTime:
    """Times of one fetch. `queued_s` is wall time in which it was runnable but had no CPU."""

    wall_s: float
    cpu_s: float
    queued_s: float = 0.0

    @property
    def busy_s(self) -> float:
        """Wall time if a CPU had been free."""
        return max(self.wall_s - self.queued_s, self.cpu_s, 1e-9)


def timed(fetch: Callable[[], T]) -> tuple[T, FetchTime]:
    """Fetch in this thread and measure it."""
    queued, cpu, wall = _queued_s(), time.thread_time(), time.perf_counter()
    value = fetch()
    took = time.perf_counter() - wall, time.thread_time() - cpu
    return value, FetchTime(*took, queued_s=_queued_s() - queued)


def cpu_share(fetches: list[FetchTime]) -> float:
    """Return CPU time as a share of the time fetches would take with a free CPU."""
    return sum(fetch.cpu_s for fetch in fetches) / sum(fetch.busy_s for fetch in fetches)


def warn(what: str) -> None:
    """Warn that threads do not help; in a loader with workers, only one worker warns."""
    worker = get_worker_info()
    if worker is None or worker.id == 0:
        instead = "; DataLoader(num_workers=…) uses processes instead" if worker is None else ""
        text = f"{what}; threads help with waiting, not with computing in Python{instead}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)


class ThreadJudge:
    """Decides whether to use threads, and checks again now and then."""

    def __init__(self, threads: int) -> None:
        self.mode = FetchMode.PROBE
        self.why = "nothing was fetched yet"
        self.share = 0.0
        self.fetch_s = 0.0
        """Time of one fetch without threads."""
        self._threads = threads
        self._probed: list[FetchTime] = []
        self._trial_failed = False
        self._next_look_s = 0.0
        self._looked: list[FetchTime] = []
        self._cpu_s = 0.0
        self._since_s = 0.0
        self._look_after_s = 1.0

    def probe(self, fetch: Callable[[], T]) -> T:
        """Fetch one sample without threads; the mode changes once enough is known."""
        value, took = timed(fetch)
        self._probed.append(took)
        # The first fetch may open files and fill caches: it counts only if it clearly waits.
        first, others = self._probed[0], self._probed[1:]
        if not others:
            if first.busy_s >= 1e-3 and cpu_share([first]) < _SURELY_WAITS_BELOW:
                self._concluded([first])
        elif len(others) >= 15 or (len(others) >= 3 and sum(one.wall_s for one in others) >= 5e-3):
            self._concluded(others)
        return value

    def _concluded(self, fetches: list[FetchTime]) -> None:
        self._probed = []
        self.share = cpu_share(fetches)
        self.fetch_s = median(one.busy_s for one in fetches)
        if self.share < _WAITS_BELOW:
            self._use_threads(
                f"{words.percent(1 - self.share)} of a fetch of {words.duration(self.fetch_s)} is waiting"
            )
        else:
            self.why = (
                f"{words.percent(self.share)} of a fetch of {words.duration(self.fetch_s)} is computing"
            )
            worth_a_trial = self.fetch_s >= _MIN_TRIAL_S and not self._trial_failed
            self.mode = FetchMode.TRIAL if worth_a_trial else FetchMode.INLINE

    def tried(self, wall_s: float, fetches: int) -> None:
        """Note the result of a trial with threads."""
        gain = self.fetch_s * fetches / wall_s
        if gain >= _GAIN_FROM:
            self._use_threads(
                f"{self.why}, but {self._threads} threads are {words.times(gain)} as fast as none"
            )
        else:
            self._trial_failed = True
            self.mode = FetchMode.INLINE
            self.why = f"{self.why}, and {self._threads} threads are {words.times(gain, 2)} as fast as none"

    def _use_threads(self, why: str) -> None:
        self.mode = FetchMode.THREADS
        self.why = why
        self._cpu_s, self._since_s = 0.0, time.perf_counter()

    def used_threads(self, cpu_s: float) -> None:
        """Note the CPU time that threads used; if it is nearly a whole core's, measure again."""
        self._cpu_s += cpu_s
        now = time.perf_counter()
        span_s = now - self._since_s
        if span_s < self._look_after_s:
            return
        if self._cpu_s >= _WAITS_BELOW * span_s:
            self.mode = FetchMode.PROBE
            self._look_after_s *= 2
        self._cpu_s, self._since_s = 0.0, now

    def inline(self, fetch: Callable[[Any], T], argument: Any) -> T:
        """Fetch without threads, and check now and then whether fetches have begun to wait."""
        wall = time.perf_counter()
        if wall < self._next_look_s:
            return fetch(argument)
        self._next_look_s = wall + _BETWEEN_LOOKS_S
        value, took = timed(partial(fetch, argument))
        self._looked.append(took)
        if len(self._looked) == _LOOKS or sum(one.busy_s for one in self._looked) >= _LOOK_AT_S:
            if cpu_share(self._looked) < _SURELY_WAITS_BELOW:
                self.mode = FetchMode.PROBE
            self._looked = []
        return value


def _queued_s() -> float:
    """Return seconds this thread was runnable without a CPU; 0 if the kernel does not say.

    ``/proc/thread-self/schedstat`` reads ``on-CPU-ns queued-ns timeslices``.
    """
    try:
        with open("/proc/thread-self/schedstat", "rb", buffering=0) as counters:  # noqa: PTH123  # half the time
            return int(counters.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
