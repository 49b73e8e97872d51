"""What the kernel knows about this thread, read without root and without opening anything twice.

    /proc/thread-self/schedstat   "39448 1203 7": ns on a CPU, ns runnable but not running, timeslices
    /proc/self/io                 "rchar: 6976\nwchar: 0\nsyscr: 10\nsyscw: 0\nread_bytes: 0\n…"
    /proc/thread-self/stat        field 42: ticks of block-I/O delay, where the kernel counts it

Every one of them may be missing (macOS, gVisor, a locked-down container): its readings are then None.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import NamedTuple

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_DELAY_FIELD = 41
"""Of /proc/…/stat, counted from 0; the second field may hold blanks, so counting starts behind its ')'."""


class Reading(NamedTuple):
    """Counters of one thread at one moment. Only differences of two readings mean anything."""

    wall_ns: int
    cpu_ns: int
    """On a CPU, this thread."""
    system_ns: int
    """Of `cpu_ns`, inside the kernel."""
    queued_ns: int | None
    """Runnable, but not running: other threads had the cores, or a cgroup quota was used up."""
    asked_bytes: int | None
    """Handed out by read calls, of the whole process."""
    storage_bytes: int | None
    """Fetched from storage, of the whole process."""
    major_faults: int
    switches: int
    """Gave the CPU away to wait for something."""
    delay_ns: int | None
    """Waited for block I/O; None where the kernel does not count it."""


class Counters:
    """The calling thread's counters. Belongs to that thread; not to be carried over a fork."""

    def __init__(self) -> None:
        self._schedstat = _open("/proc/thread-self/schedstat")
        self._io = _open("/proc/self/io")
        self._stat = _open("/proc/thread-self/stat") if counts_delay() else None

    def read(self) -> Reading:
        """All counters now, in about six microseconds."""
        usage = resource.getrusage(resource.RUSAGE_THREAD)
        queued = asked = storage = delay = None
        if self._schedstat is not None:
            queued = int(os.pread(self._schedstat, 64, 0).split()[1])
        if self._io is not None:
            words = os.pread(self._io, 256, 0).split()
            asked, storage = int(words[1]), int(words[9])
        if self._stat is not None:
            delay = int(os.pread(self._stat, 512, 0).rpartition(b")")[2].split()[_DELAY_FIELD - 2]) * _TICK_NS
        return Reading(
            time.perf_counter_ns(),
            time.thread_time_ns(),
            round(usage.ru_stime * 1e9),
            queued,
            asked,
            storage,
            usage.ru_majflt,
            usage.ru_nvcsw,
            delay,
        )

    def quick(self) -> tuple[int, int]:
        """Thread CPU and queued nanoseconds alone (−1: not known), in about two microseconds."""
        if self._schedstat is None:
            return time.thread_time_ns(), -1
        return time.thread_time_ns(), int(os.pread(self._schedstat, 64, 0).split()[1])

    def close(self) -> None:
        """Let go of the descriptors."""
        for fd in (self._schedstat, self._io, self._stat):
            if fd is not None:
                os.close(fd)
        self._schedstat = self._io = self._stat = None


def counts_delay() -> bool:
    """Whether the kernel adds up how long tasks wait for block I/O (off by default)."""
    try:
        return Path("/proc/sys/kernel/task_delayacct").read_text().strip() == "1"
    except OSError:
        return False


def _open(path: str) -> int | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.pread(fd, 64, 0).split():
            return fd
    except OSError:
        pass  # there, but not for us
    os.close(fd)
    return None
