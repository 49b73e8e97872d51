"""What the kernel knows about this thread, read without root and without opening anything twice.

    /proc/thread-self/schedstat   "39448 1203 7": ns on a CPU, ns runnable but not running, timeslices
    /proc/self/io                 "rchar: 6976\nwchar: 0\nsyscr: 10\nsyscw: 0\nread_bytes: 0\n…"
    /proc/thread-self/stat        field 42: ticks of block-I/O delay, where the kernel counts it

Every one of them may be missing (macOS, gVisor, a locked-down container): its readings are then None.
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from unstarve.native import native

SCHEDSTAT = "/proc/thread-self/schedstat"
IO = "/proc/self/io"

_RUSAGE_THREAD: int | None = getattr(resource, "RUSAGE_THREAD", None)  # not on macOS
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_NO_FILE = -1
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
    """The calling thread's counters. Belongs to that thread; not to be carried over a fork.

    A program may close descriptors that it does not know (daemons do): what then cannot be read, or does not
    read like a counter, is given up and not known from there on.
    """

    def __init__(self) -> None:
        self._schedstat = _open(SCHEDSTAT)
        self._io = _open(IO)
        self._stat: int | None = None
        if counts_delay() and (stat := _open("/proc/thread-self/stat")) >= 0:
            self._stat = stat

    def read(self) -> Reading:
        """All counters now."""
        delay = None
        if self._stat is not None:
            try:
                fields = os.pread(self._stat, 512, 0).rpartition(b")")[2].split()
                delay = int(fields[_DELAY_FIELD - 2]) * _TICK_NS
            except (OSError, ValueError, IndexError):
                self._stat = None
        found = _read_counters(self._schedstat, self._io)
        wall, cpu, system, queued, asked, storage, faults, switches = found
        if queued < 0:
            self._schedstat = _NO_FILE
        if storage < 0:
            self._io = _NO_FILE
        return Reading(
            wall, cpu, system, _known(queued), _known(asked), _known(storage), faults, switches, delay
        )

    def light(self, before: Reading) -> Reading:
        """The same without what is read from files of the process: that stays as it was `before`."""
        wall, cpu, system, queued, _, _, faults, switches = _read_counters(self._schedstat, _NO_FILE)
        asked, storage, delay = before.asked_bytes, before.storage_bytes, before.delay_ns
        return Reading(wall, cpu, system, _known(queued), asked, storage, faults, switches, delay)

    def quick(self) -> tuple[int, int]:
        """Thread CPU and queued nanoseconds alone (−1: not known)."""
        return _read_quick(self._schedstat)

    def close(self) -> None:
        """Let go of the descriptors."""
        for fd in (self._schedstat, self._io, self._stat):
            if fd is not None and fd >= 0:
                with contextlib.suppress(OSError):  # somebody else was faster
                    os.close(fd)
        self._schedstat = self._io = _NO_FILE
        self._stat = None

    __del__ = close  # threads come and go: their descriptors must go with them


_here = threading.local()


def own_counters() -> Counters:
    """The calling thread's, opened once."""
    found: Counters | None = getattr(_here, "counters", None)
    if found is None:
        found = _here.counters = Counters()
    return found


def _forget_in_child() -> None:
    """The forked child's thread is another one than its parent's."""
    global _here
    _here = threading.local()


os.register_at_fork(after_in_child=_forget_in_child)


def counts_delay() -> bool:
    """Whether the kernel adds up how long tasks wait for block I/O (off by default)."""
    try:
        return Path("/proc/sys/kernel/task_delayacct").read_text().strip() == "1"
    except OSError:
        return False


def _open(path: str) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return _NO_FILE
    try:
        if os.pread(fd, 64, 0).split():
            return fd
    except OSError:
        pass  # there, but not for us
    os.close(fd)
    return _NO_FILE


def _known(value: int) -> int | None:
    return None if value < 0 else value


def _numbers(fd: int) -> list[int]:
    """The numbers in a small file; none when it cannot be read."""
    if fd < 0:
        return []
    try:
        return [int(word) for word in os.pread(fd, 256, 0).split() if word.isdigit()]
    except OSError:
        return []


def _python_quick(schedstat: int) -> tuple[int, int]:
    numbers = _numbers(schedstat)
    return time.thread_time_ns(), numbers[1] if len(numbers) == 3 else -1


def _python_counters(schedstat: int, io: int) -> tuple[int, int, int, int, int, int, int, int]:
    """The twin of the native reading."""
    system_ns = faults = switches = 0
    if _RUSAGE_THREAD is not None:
        usage = resource.getrusage(_RUSAGE_THREAD)
        system_ns, faults, switches = round(usage.ru_stime * 1e9), usage.ru_majflt, usage.ru_nvcsw
    numbers = _numbers(io)
    asked, storage = (numbers[0], numbers[4]) if len(numbers) > 4 else (-1, -1)
    cpu_ns, queued = _python_quick(schedstat)
    return time.perf_counter_ns(), cpu_ns, system_ns, queued, asked, storage, faults, switches


_native: Any = native()
_read_counters: Callable[[int, int], tuple[int, int, int, int, int, int, int, int]] = (
    _python_counters if _native is None else _native.read_counters
)
_read_quick: Callable[[int], tuple[int, int]] = _python_quick if _native is None else _native.read_quick
