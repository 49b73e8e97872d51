"""Whether threads help with this dataset, by measurement.

Threads help where a fetch waits: for a disk, a network, a database. Where it computes in Python they take
turns, and handing samples over makes it slower. The first fetches are made without threads and timed; where
they hardly wait, a few more are made with threads, for compiled code may compute in several at once.
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
"""A fetch whose CPU share is lower waits enough for threads to be worth it."""

_SURELY_WAITS_BELOW = 0.5
_GAIN_FROM = 1.25
"""With threads, this much faster than without, or they are not used."""

_WORTH_A_TRIAL_S = 250e-6
"""Shorter fetches that compute cost more to hand over than several cores could win."""

_BETWEEN_LOOKS_S = 20e-3
"""Without threads a call is timed every so often, to notice when fetches begin to wait; that takes 40 µs."""

_LOOK_AT_S = 5e-3
"""How much of them is looked at together, but never more than `_LOOKS` calls."""

_LOOKS = 16


class Mode(Enum):
    """How samples are fetched now."""

    PROBE = "one by one, timed"
    TRIAL = "with threads, timed"
    THREADS = "with threads"
    INLINE = "without threads"


@dataclass(frozen=True)
class Fetch:
    """What one fetch took. `queued_s` is the part of the wall time in which it wanted a CPU and had none."""

    wall_s: float
    cpu_s: float
    queued_s: float = 0.0

    @property
    def busy_s(self) -> float:
        """The time it would have taken with a CPU at hand."""
        return max(self.wall_s - self.queued_s, self.cpu_s, 1e-9)


def timed(fetch: Callable[[], T]) -> tuple[T, Fetch]:
    """Fetch in this thread and say what it took."""
    queued, cpu, wall = _queued_s(), time.thread_time(), time.perf_counter()
    value = fetch()
    took = time.perf_counter() - wall, time.thread_time() - cpu
    return value, Fetch(*took, queued_s=_queued_s() - queued)


def cpu_share(fetches: list[Fetch]) -> float:
    """The share of the time, with a CPU at hand, that was spent on it."""
    return sum(fetch.cpu_s for fetch in fetches) / sum(fetch.busy_s for fetch in fetches)


def warn(what: str) -> None:
    """Say that threads are of no use here, for a loader with workers once."""
    worker = get_worker_info()
    if worker is None or worker.id == 0:
        instead = "; the workers of DataLoader(num_workers=…) are processes" if worker is None else ""
        text = f"{what}; threads help with waiting, not with computing in Python{instead}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)


class Judge:
    """Decides between threads and none, and looks again now and then."""

    def __init__(self, threads: int) -> None:
        self.mode = Mode.PROBE
        self.why = "nothing was fetched yet"
        self.share = 0.0
        self.fetch_s = 0.0
        """What one fetch takes without threads."""
        self._threads = threads
        self._probed: list[Fetch] = []
        self._tried_in_vain = False
        self._next_look_s = 0.0
        self._looked: list[Fetch] = []
        self._cpu_s = 0.0
        self._since_s = 0.0
        self._look_after_s = 1.0

    def probe(self, fetch: Callable[[], T]) -> T:
        """Fetch one sample without threads; the mode changes once enough is known."""
        value, took = timed(fetch)
        self._probed.append(took)
        # The first one may open files and fill caches: it counts only if it clearly waits.
        first, others = self._probed[0], self._probed[1:]
        if not others:
            if first.busy_s >= 1e-3 and cpu_share([first]) < _SURELY_WAITS_BELOW:
                self._concluded([first])
        elif len(others) >= 15 or (len(others) >= 3 and sum(one.wall_s for one in others) >= 5e-3):
            self._concluded(others)
        return value

    def _concluded(self, fetches: list[Fetch]) -> None:
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
            worth_a_trial = self.fetch_s >= _WORTH_A_TRIAL_S and not self._tried_in_vain
            self.mode = Mode.TRIAL if worth_a_trial else Mode.INLINE

    def tried(self, wall_s: float, fetches: int) -> None:
        """Take note of a trial with threads."""
        gain = self.fetch_s * fetches / wall_s
        if gain >= _GAIN_FROM:
            self._use_threads(
                f"{self.why}, yet {self._threads} threads are {words.times(gain)} as fast as none"
            )
        else:
            self._tried_in_vain = True
            self.mode = Mode.INLINE
            self.why = f"{self.why}, and {self._threads} threads are {words.times(gain, 2)} as fast as none"

    def _use_threads(self, why: str) -> None:
        self.mode = Mode.THREADS
        self.why = why
        self._cpu_s, self._since_s = 0.0, time.perf_counter()

    def used_threads(self, cpu_s: float) -> None:
        """Take note of the CPU time that threads used: where it is a whole core's, look again."""
        self._cpu_s += cpu_s
        now = time.perf_counter()
        span_s = now - self._since_s
        if span_s < self._look_after_s:
            return
        if self._cpu_s >= _WAITS_BELOW * span_s:
            self.mode = Mode.PROBE
            self._look_after_s *= 2
        self._cpu_s, self._since_s = 0.0, now

    def inline(self, fetch: Callable[[Any], T], argument: Any) -> T:
        """Fetch without threads, and look now and then whether fetches have begun to wait."""
        wall = time.perf_counter()
        if wall < self._next_look_s:
            return fetch(argument)
        self._next_look_s = wall + _BETWEEN_LOOKS_S
        value, took = timed(partial(fetch, argument))
        self._looked.append(took)
        if len(self._looked) == _LOOKS or sum(one.busy_s for one in self._looked) >= _LOOK_AT_S:
            if cpu_share(self._looked) < _SURELY_WAITS_BELOW:
                self.mode = Mode.PROBE
            self._looked = []
        return value


def _queued_s() -> float:
    """Seconds this thread has been runnable without a CPU; 0 where the kernel does not say.

    ``/proc/thread-self/schedstat`` reads ``on-CPU-ns queued-ns timeslices``.
    """
    try:
        with open("/proc/thread-self/schedstat", "rb", buffering=0) as counters:  # noqa: PTH123  # half the time
            return int(counters.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
