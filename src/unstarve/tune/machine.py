"""The machine as tuning sees it: cores, and the CPU time that training and its workers take."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

from unstarve.machine import share_of_cores

MOST_WORKERS = 16
"""Tried at most, unless there are more cores: beyond, memory and start-up cost more than is gained."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What bounds a search."""

    cores: float
    most_workers: int


def this_machine(most_workers: int | None = None) -> Machine:
    """What this process may use of it."""
    cores = share_of_cores()
    return Machine(cores, most_workers or max(MOST_WORKERS, int(cores)))


class CpuClock:
    """CPU time of this process, and of its workers, since it was made."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = tuple(pids)
        self._main_s = time.process_time()
        self._workers_s = self._read()

    def elapsed_s(self) -> tuple[float, float] | None:
        """Its own and the workers'; None where one of them is gone, or may not be asked."""
        workers_s = self._read()
        if workers_s is None or self._workers_s is None:
            return None
        return time.process_time() - self._main_s, workers_s - self._workers_s

    def _read(self) -> float | None:
        try:
            spent = [psutil.Process(pid).cpu_times() for pid in self._pids]
        except psutil.Error:
            return None
        return sum(times.user + times.system for times in spent)
