"""The machine as tuning sees it: cores, and the CPU time that training and its workers take."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

MOST_WORKERS = 16
"""Tried at most, unless there are more cores: beyond, memory and start-up cost more than is gained."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What bounds a search."""

    cores: float
    most_workers: int


def this_machine(most_workers: int | None = None) -> Machine:
    """The cores that are this process's share: by affinity, a container's quota, the ranks on a node."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    cores = float(len(affinity(0)) if affinity else os.cpu_count() or 1)
    quota = _quota()
    if quota is not None:
        cores = min(cores, quota)
    cores = max(cores / max(int(os.environ.get("LOCAL_WORLD_SIZE", "1") or 1), 1), 1.0)
    return Machine(cores, most_workers or max(MOST_WORKERS, int(cores)))


def _quota() -> float | None:
    """Cores that a container may use.

    Version 2 says ``cpu.max``: "200000 100000", or "max 100000"; version 1 says it in two files.
    """
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        folder = Path("/sys/fs/cgroup/cpu")
        micros = int((folder / "cpu.cfs_quota_us").read_text())
        return micros / int((folder / "cpu.cfs_period_us").read_text()) if micros > 0 else None
    except (OSError, ValueError):
        return None


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
