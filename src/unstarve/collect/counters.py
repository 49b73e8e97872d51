"""The kernel's counters of this thread, read without root and without opening a file twice.

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
_NO_USAGE = resource.struct_rusage((0,) * 16)
_MOMENT_NS = 20_000_000
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_UNKNOWN = -1
_NO_FILE = -1
_DELAY_FIELD = 41
"""Of /proc/…/stat, counted from 0; the second field may hold blanks, so counting starts behind its ')'."""


class Moment(NamedTuple):
    """The counters of a thread when a wait begins or ends."""

    wall_ns: int
    cpu_ns: int
    queued_ns: int
    waits: int = _UNKNOWN
    """How often it had given up its core to wait for something; −1 where that is not counted."""
    read_ns: int = 0
    """When its CPU time was read."""


class CounterReading(NamedTuple):
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
    """How often it gave up the CPU to wait for something."""
    delay_ns: int
    """Waited for block I/O; unknown where the kernel does not count it."""
    waits: int = _UNKNOWN
    read_ns: int = 0
    """As in a `Moment`."""


class PythonCounters:
    """The counters of the thread that uses it. Must not be used after a fork.

    Reading them is dear when training has left the caches cold, so they are read only where the thread's
    context switches, which are cheap to read, do not imply them. While it gave up no core voluntarily, all
    time off the CPU was time runnable without a CPU; while it also lost none to others, and for a short time
    only, all of the time was CPU time.

    It is given file descriptors, or −1 for none, and closes them. A program may close descriptors that it
    does not know (daemons do): a counter that can no longer be read, or that does not look like one, is
    unknown from then on. The twin of ``_native.Counters``.
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
        self._latest = Moment(0, 0, _UNKNOWN)
        """When the counters were read last, and what they said."""
        self._losses = 0
        """How often the thread had lost its core to others at that time."""
        self._told_cpu_ns = self._told_queued_ns = 0
        self._files = (_UNKNOWN, _UNKNOWN, _UNKNOWN)
        """Of the process: bytes asked for, bytes from storage, block-I/O delay …"""
        self._files_waits = _UNKNOWN
        """… and how often the thread had waited at that time."""

    def read(self) -> CounterReading:
        """All counters now."""
        reading, waited_for_nothing = self._read_thread()
        if not waited_for_nothing or self._files_waits != reading.waits:
            numbers = _numbers(self.io)
            asked, storage = (numbers[0], numbers[4]) if len(numbers) > 4 else (_UNKNOWN, _UNKNOWN)
            if storage < 0:
                self.io = _NO_FILE
            self._files = (asked, storage, self._delay_ns())
            self._files_waits = reading.waits
        asked, storage, delay = self._files
        return reading._replace(asked_bytes=asked, storage_bytes=storage, delay_ns=delay)

    def read_light(self, before: CounterReading) -> CounterReading:
        """The counters of the thread now; those of the process as they were `before`."""
        asked, storage, delay = before.asked_bytes, before.storage_bytes, before.delay_ns
        reading, _ = self._read_thread()
        return reading._replace(asked_bytes=asked, storage_bytes=storage, delay_ns=delay)

    def read_no_files(self) -> None:
        """No files were read since `read`: its counters of the process still hold."""
        self._files_waits = self._latest.waits

    def ask(self, in_line: bool) -> Moment:
        """A wait begins: the clock is read last. `in_line` adds the time without a CPU, which is dear."""
        stand, _ = self._stand(_usage(), in_line=in_line)
        return stand._replace(wall_ns=time.perf_counter_ns())

    def got(self, in_line: bool) -> Moment:
        """A wait is over: the clock is read first."""
        wall = time.perf_counter_ns()
        stand, _ = self._stand(_usage(), in_line=in_line)
        return stand._replace(wall_ns=wall)

    def _read_thread(self) -> tuple[CounterReading, bool]:
        """The counters of the thread; and whether it has not waited for anything since a short time ago."""
        usage = _usage()
        system_ns, faults, switches = round(usage.ru_stime * 1e9), usage.ru_majflt, usage.ru_nvcsw
        (_, cpu, queued, *when), waited_for_nothing = self._stand(usage, in_line=True)
        wall, files = time.perf_counter_ns(), (_UNKNOWN, _UNKNOWN)
        reading = CounterReading(wall, cpu, system_ns, queued, *files, faults, switches, _UNKNOWN, *when)
        return reading, waited_for_nothing

    def _stand(self, usage: resource.struct_rusage, *, in_line: bool) -> tuple[Moment, bool]:
        """The state of the thread, read or implied; and whether it has not waited for anything."""
        latest, now = self._latest, time.perf_counter_ns()
        # A kernel that counts no switches at all implies nothing.
        waits = usage.ru_nvcsw if usage.ru_nvcsw + usage.ru_nivcsw else _UNKNOWN
        waited = waits < 0 or waits != latest.waits
        a_moment = now - latest.read_ns < _MOMENT_NS
        kept_core = not waited and a_moment and usage.ru_nivcsw == self._losses
        # Time that a hypervisor takes away without a switch is implied to be CPU time or time in line, but
        # counted as neither: values that were returned never go back.
        if kept_core:
            cpu, read_ns = latest.cpu_ns + now - latest.read_ns, now
        else:
            cpu, read_ns = max(time.thread_time_ns(), self._told_cpu_ns), time.perf_counter_ns()
        if not waited and latest.queued_ns >= 0:
            queued = latest.queued_ns + max(read_ns - latest.read_ns - (cpu - latest.cpu_ns), 0)
        else:
            counted_ns = self.queued() if in_line else _UNKNOWN
            queued = _UNKNOWN if counted_ns < 0 else max(counted_ns, self._told_queued_ns)
        moment = Moment(0, cpu, queued, waits, read_ns)
        self._told_cpu_ns, self._told_queued_ns = cpu, max(self._told_queued_ns, queued)
        if not kept_core or queued != latest.queued_ns:
            self._latest, self._losses = moment, usage.ru_nivcsw
        return moment, not waited and a_moment

    def queued(self) -> int:
        """Nanoseconds runnable without a CPU; any thread may ask for it."""
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
        """Close the descriptors."""
        for fd in (self.schedstat, self.io, self.stat):
            if fd >= 0:
                with contextlib.suppress(OSError):  # the program has closed them
                    os.close(fd)
        self.schedstat = self.io = self.stat = _NO_FILE

    __del__ = close  # threads come and go: their descriptors must be closed with them


_native: Any = native()
Counters: type[PythonCounters] = PythonCounters if _native is None else _native.Counters


def open_counters() -> PythonCounters:
    """Counters of the calling thread, whichever thread reads them later."""
    return Counters(_open(SCHEDSTAT), _open(IO), _open(STAT) if counts_delay() else _NO_FILE, _TICK_NS)


_here = threading.local()


def own_counters() -> PythonCounters:
    """The counters of the calling thread, opened once."""
    found: PythonCounters | None = getattr(_here, "counters", None)
    if found is None:
        found = _here.counters = open_counters()
    return found


def _forget_in_child() -> None:
    """In a forked child: its thread is not the parent's."""
    global _here
    _here = threading.local()


os.register_at_fork(after_in_child=_forget_in_child)


def counts_delay() -> bool:
    """Whether the kernel adds up how long tasks wait for block I/O (off by default)."""
    try:
        return Path("/proc/sys/kernel/task_delayacct").read_text().strip() == "1"
    except OSError:
        return False


def _usage() -> resource.struct_rusage:
    """Resource usage of the calling thread; all zero where the system does not report it."""
    return _NO_USAGE if _RUSAGE_THREAD is None else resource.getrusage(_RUSAGE_THREAD)


def _open(path: str) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return _NO_FILE
    try:
        if os.pread(fd, 64, 0).split():
            return fd
    except OSError:
        pass  # it exists, but we may not read it
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
