"""What the kernel knows about this thread, read without root and without opening anything twice.

    /proc/thread-self/schedstat   "39448 1203 7": ns on a CPU, ns runnable but not running, timeslices
    /proc/self/io                 "rchar: 6976\nwchar: 0\nsyscr: 10\nsyscw: 0\nread_bytes: 0\n…"
    /proc/thread-self/stat        field 42: ticks of block-I/O delay, where the kernel counts it

Every one of them may be missing (macOS, gVisor, a locked-down container): its readings are then −1.
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from unstarve.native import native

SCHEDSTAT = "/proc/thread-self/schedstat"
IO = "/proc/self/io"
STAT = "/proc/thread-self/stat"

_RUSAGE_THREAD: int | None = getattr(resource, "RUSAGE_THREAD", None)  # not on macOS
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_UNKNOWN = -1
_NO_FILE = -1
_DELAY_FIELD = 41
"""Of /proc/…/stat, counted from 0; the second field may hold blanks, so counting starts behind its ')'."""


class Moment(NamedTuple):
    """Where a thread stands when it begins or ends to wait."""

    wall_ns: int
    cpu_ns: int
    queued_ns: int


class Reading(NamedTuple):
    """Counters of one thread at one moment; −1 is unknown. Only differences of two readings mean anything."""

    wall_ns: int
    cpu_ns: int
    """On a CPU, this thread."""
    system_ns: int
    """Of `cpu_ns`, inside the kernel."""
    queued_ns: int
    """Runnable, but not running: other threads had the cores, or a cgroup quota was used up."""
    asked_bytes: int
    """Handed out by read calls, of the whole process."""
    storage_bytes: int
    """Fetched from storage, of the whole process."""
    major_faults: int
    switches: int
    """Gave the CPU away to wait for something."""
    delay_ns: int
    """Waited for block I/O; unknown where the kernel does not count it."""


class PythonCounters:
    """The counters of the thread that uses it. Not to be carried over a fork.

    It is given descriptors, or −1 for none, and closes them. A program may close descriptors that it does not
    know (daemons do): what then cannot be read, or does not read like a counter, is given up and not known
    from there on. The twin of ``_native.Counters``.
    """

    def __init__(self, schedstat: int, io: int, stat: int, tick_ns: int) -> None:
        self.schedstat = schedstat
        self.io = io
        self.stat = stat
        self._tick_ns = tick_ns
        self.depth = 0
        """How many waits of this thread are running inside each other."""
        self.last_got: Moment | None = None
        """The end of its last outermost wait."""
        self.fetch: tuple[Moment, Moment] | None = None
        """Around its last fetch, if there was one in this wait."""

    def read(self) -> Reading:
        """All counters now."""
        numbers = _numbers(self.io)
        asked, storage = (numbers[0], numbers[4]) if len(numbers) > 4 else (_UNKNOWN, _UNKNOWN)
        if storage < 0:
            self.io = _NO_FILE
        delay = self._delay_ns()
        return self.read_light(Reading(0, 0, 0, 0, asked, storage, 0, 0, delay))

    def read_light(self, before: Reading) -> Reading:
        """The same without what is read from files of the process: that stays as it was `before`."""
        queued = self.queued()
        system_ns = faults = switches = 0
        if _RUSAGE_THREAD is not None:
            usage = resource.getrusage(_RUSAGE_THREAD)
            system_ns, faults, switches = round(usage.ru_stime * 1e9), usage.ru_majflt, usage.ru_nvcsw
        cpu = time.thread_time_ns()
        wall = time.perf_counter_ns()
        asked, storage, delay = before.asked_bytes, before.storage_bytes, before.delay_ns
        return Reading(wall, cpu, system_ns, queued, asked, storage, faults, switches, delay)

    def ask(self) -> Moment:
        """A wait begins: the clock is read last."""
        queued, cpu = self.queued(), time.thread_time_ns()
        return Moment(time.perf_counter_ns(), cpu, queued)

    def got(self) -> Moment:
        """A wait is over: the clock is read first."""
        return Moment(time.perf_counter_ns(), time.thread_time_ns(), self.queued())

    def queued(self) -> int:
        """Nanoseconds runnable without a CPU; this one may be asked for by any thread."""
        numbers = _numbers(self.schedstat)
        if len(numbers) == 3:
            return numbers[1]
        self.schedstat = _NO_FILE
        return _UNKNOWN

    def _delay_ns(self) -> int:
        if self.stat >= 0:
            try:
                fields = os.pread(self.stat, 1024, 0).rpartition(b")")[2].split()
                return int(fields[_DELAY_FIELD - 2]) * self._tick_ns
            except (OSError, ValueError, IndexError):
                self.stat = _NO_FILE
        return _UNKNOWN

    def close(self) -> None:
        """Let go of the descriptors."""
        for fd in (self.schedstat, self.io, self.stat):
            if fd >= 0:
                with contextlib.suppress(OSError):  # somebody else was faster
                    os.close(fd)
        self.schedstat = self.io = self.stat = _NO_FILE

    __del__ = close  # threads come and go: their descriptors must go with them


_native: Any = native()
Counters: type[PythonCounters] = PythonCounters if _native is None else _native.Counters


def open_counters() -> PythonCounters:
    """Counters of the calling thread, wherever they are read later."""
    return Counters(_open(SCHEDSTAT), _open(IO), _open(STAT) if counts_delay() else _NO_FILE, _TICK_NS)


_here = threading.local()


def own_counters() -> PythonCounters:
    """The calling thread's, opened once."""
    found: PythonCounters | None = getattr(_here, "counters", None)
    if found is None:
        found = _here.counters = open_counters()
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


def _numbers(fd: int) -> list[int]:
    """The numbers in a small file; none when it cannot be read."""
    if fd < 0:
        return []
    try:
        return [int(word) for word in os.pread(fd, 256, 0).split() if word.isdigit()]
    except OSError:
        return []
