"""The CPU time of the training process, of its workers, and of everybody else meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

from unstarve.machine import machine_cpu_s, share_of_cores

_THIS_THREAD = "thread-self"


@dataclass(frozen=True, slots=True)
class CpuTime:
    """CPU seconds per batch."""

    main_s: float
    """Of the training process, all its threads."""
    workers_s: float
    wait_s: float = 0.0
    """Of the thread that trains, inside ``next()``."""
    loop_s: float = 0.0
    """Of that thread, between two calls of ``next()``."""
    kernel_s: float = 0.0
    """The kernel's part of `workers_s`: mostly shared memory."""
    queued_s: float = 0.0
    """How long workers were ready to run and had no core."""
    main_queued_s: float = 0.0
    """The same for the thread that trains."""
    foreign_cores: float | None = None
    """Cores that other processes used meanwhile, of those that this one may use; None if that is unknown."""

    @property
    def all_s(self) -> float:
        """Of the training process and its workers together."""
        return self.main_s + self.workers_s


class CpuClock:
    """CPU time of this process and of its workers since the clock was made."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = tuple(pids)
        self._began_s = time.perf_counter()
        self._main_s = time.process_time()
        self._main_queued_s = _queued_s(_THIS_THREAD)
        self._machine_s = machine_cpu_s()
        self._workers = self._read()

    @property
    def age_s(self) -> float:
        """Seconds since it was made."""
        return time.perf_counter() - self._began_s

    def per_step(self, steps: int, wait_s: float, loop_s: float) -> CpuTime | None:
        """Per step; None if a worker is gone or cannot be read. The training thread's seconds are given."""
        now, before = self._read(), self._workers
        if now is None or before is None:
            return None
        main_s = time.process_time() - self._main_s
        main_queued_s = _queued_s(_THIS_THREAD) - self._main_queued_s
        workers_s, kernel_s, queued_s = (a - b for a, b in zip(now, before, strict=True))
        return CpuTime(
            main_s / steps,
            workers_s / steps,
            wait_s,
            loop_s,
            kernel_s / steps,
            queued_s / steps,
            main_queued_s / steps,
            self._foreign_cores(main_s + workers_s),
        )

    def _foreign_cores(self, own_s: float) -> float | None:
        machine_s = machine_cpu_s()
        # With several ranks on this machine, other processes are training's own.
        if machine_s is None or self._machine_s is None or os.environ.get("LOCAL_WORLD_SIZE", "1") != "1":
            return None
        beyond = (os.cpu_count() or 1) - share_of_cores()  # a quota keeps us off these, not others
        return max((machine_s - self._machine_s - own_s) / self.age_s - beyond, 0.0)

    def _read(self) -> tuple[float, float, float] | None:
        """CPU seconds of all workers, the kernel's part of them, and seconds in the run queue."""
        try:
            spent = [psutil.Process(pid).cpu_times() for pid in self._pids]
        except psutil.Error:
            return None
        kernel_s = sum(times.system for times in spent)
        return sum(times.user for times in spent) + kernel_s, kernel_s, sum(map(_queued_s, self._pids))


def _queued_s(task: int | str) -> float:
    """Seconds that a process's first thread was runnable but not running; 0 where Linux does not count it."""
    try:
        with open(f"/proc/{task}/schedstat", "rb") as file:  # noqa: PTH123  # half the time
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
