"""The processor's counters of the calling thread, by perf_event_open(2): no root, no other program.

Cycles, instructions, misses of the cache and of the TLB form one group, which is read with one call:

    u64 number of values, u64 ns enabled, u64 ns running, then the values

Virtual machines often have no such counters, containers may forbid the call: `why_not_perf` says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

_CALL = {"x86_64": 298, "aarch64": 241}
_ATTRIBUTES = struct.Struct("<IIQQQQQIIQ")
"""perf_event_attr in its first version: type, size, config, …, read format, flags, …"""
_HARDWARE, _CACHE = 0, 3
_EVENTS = (
    (_HARDWARE, 0),  # cycles
    (_HARDWARE, 1),  # instructions
    (_HARDWARE, 3),  # cache misses
    (_CACHE, 3 | 1 << 16),  # data TLB, reads, misses
)
_READ_FORMAT = 1 | 2 | 8  # time enabled, time running, the whole group
_USER_ONLY = 1 << 5 | 1 << 6  # without the kernel and the hypervisor
_CLOSE_ON_EXEC = 8
_THIS_THREAD, _ANY_CPU, _NO_GROUP = 0, -1, -1
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_UNKNOWN = -1


class PerfReading(NamedTuple):
    """The counters at one moment; −1 for one that the processor lacks."""

    enabled_ns: int
    running_ns: int
    values: tuple[int, int, int, int]


class PerfGroup:
    """The counters of the thread that makes it. Raises OSError where they are not to be had."""

    def __init__(self) -> None:
        self._fds: list[int | None] = []
        self._fds.append(_open(*_EVENTS[0], _NO_GROUP))
        for event in _EVENTS[1:]:
            try:
                self._fds.append(_open(*event, self._leader))
            except OSError:
                self._fds.append(None)

    @property
    def _leader(self) -> int:
        assert self._fds[0] is not None
        return self._fds[0]

    def read(self) -> PerfReading:
        """The counters now."""
        return unpacked(os.read(self._leader, 8 * (3 + len(_EVENTS))), [fd is not None for fd in self._fds])

    def close(self) -> None:
        """Stop counting."""
        for fd in self._fds:
            if fd is not None:
                with contextlib.suppress(OSError):  # the program has closed it
                    os.close(fd)
        self._fds = []

    __del__ = close  # threads come and go: their descriptors must be closed with them


def unpacked(data: bytes, present: list[bool]) -> PerfReading:
    """The reading in what the kernel wrote; `present` says which of the four events are in the group."""
    if len(data) != 8 * (3 + sum(present)):  # nothing, when the kernel could not keep the group together
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    _, enabled, running, *values = struct.unpack(f"<{len(data) // 8}Q", data)
    told = iter(values)
    first, second, third, fourth = (next(told) if there else _UNKNOWN for there in present)
    return PerfReading(enabled, running, (first, second, third, fourth))


class PerfTotal:
    """Counts of one part of training so far."""

    def __init__(self) -> None:
        self.reading = PerfReading(0, 0, (0, 0, 0, 0))

    def add(self, before: PerfReading, after: PerfReading) -> None:
        """Add what was counted between two readings."""
        total = self.reading
        values = [
            _UNKNOWN if now < 0 else sum_ + now - then
            for sum_, then, now in zip(total.values, before.values, after.values, strict=True)
        ]
        first, second, third, fourth = values
        self.reading = PerfReading(
            total.enabled_ns + after.enabled_ns - before.enabled_ns,
            total.running_ns + after.running_ns - before.running_ns,
            (first, second, third, fourth),
        )

    def plain(self) -> dict[str, int | None] | None:
        """As `model.processor.ProcessorCounts`; None before anything was counted."""
        if not self.reading.enabled_ns:
            return None
        names = ("cycles", "instructions", "cache_misses", "tlb_misses")
        counts = {
            name: value if value >= 0 else None
            for name, value in zip(names, self.reading.values, strict=True)
        }
        return counts | {"enabled_ns": self.reading.enabled_ns, "running_ns": self.reading.running_ns}


class PerfMeter:
    """Counts steps and fetches of one process. Its methods never raise: a failure ends the counting."""

    def __init__(self, make_group: Any = PerfGroup) -> None:
        self._make_group = make_group
        self._here = threading.local()
        self._lock = threading.Lock()
        self._trainer: int | None = None
        """The thread whose steps count: the first that gets a batch."""
        self._step_began: PerfReading | None = None
        self._step, self._loading = PerfTotal(), PerfTotal()
        self._why_not: str | None = None

    def step_begins(self) -> None:
        """The calling thread has got a batch."""
        ident = threading.get_ident()
        if self._trainer is None:
            self._trainer = ident
        if self._trainer == ident:
            self._step_began = self.read()

    def step_ends(self) -> None:
        """The calling thread asks for the next batch."""
        if self._step_began is not None and self._trainer == threading.get_ident():
            began, self._step_began = self._step_began, None
            self._add(self._step, began)

    def fetched(self, began: PerfReading | None) -> None:
        """The calling thread has made a batch; `began` was read before."""
        if began is not None:
            self._add(self._loading, began)

    def read(self) -> PerfReading | None:
        """The counters of the calling thread; None once they could not be read."""
        if self._why_not is not None:
            return None
        try:
            group = getattr(self._here, "group", None)
            if group is None:
                group = self._here.group = self._make_group()
            reading: PerfReading = group.read()
            return reading
        except OSError as error:
            self._why_not = refusal(error.errno or 0)
            return None

    def counts(self) -> dict[str, Any]:
        """The fields of the ``perf`` META."""
        return {"why_not": self._why_not, "step": self._step.plain(), "loading": self._loading.plain()}

    def _add(self, total: PerfTotal, began: PerfReading) -> None:
        ended = self.read()
        if ended is not None:
            with self._lock:
                total.add(began, ended)


def why_not_perf() -> str | None:
    """Why the counters cannot be read here, in one sentence; None if they can."""
    try:
        group = PerfGroup()
        group.read()
        group.close()
    except OSError as error:
        return refusal(error.errno or 0)
    return None


def refusal(number: int) -> str:
    """The sentence about an error of perf_event_open."""
    if not sys.platform.startswith("linux"):
        return "processor counters are read on Linux only"
    if number in (errno.EACCES, errno.EPERM):
        reason = "the system forbids it (perf_event_paranoid above 2, or a container's seccomp filter)"
    elif number in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
        reason = "this machine has no such counters, as most virtual machines"
    elif number == errno.ENOSYS:
        reason = "the kernel has no such call, or a container's seccomp filter hides it"
    else:
        reason = os.strerror(number)
    name = errno.errorcode.get(number, "an unknown error")
    return (
        f"processor counters cannot be read: perf_event_open failed with {name} (errno {number}), "
        f"perf_event_paranoid is {_paranoid()}: {reason}"
    )


def _paranoid() -> str:
    try:
        return _PARANOID.read_text().strip()
    except OSError:
        return "unknown"


def _open(kind: int, config: int, group: int) -> int:
    number = _CALL.get(platform.machine())
    if number is None or not sys.platform.startswith("linux"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    size = _ATTRIBUTES.size
    packed = _ATTRIBUTES.pack(kind, size, config, 0, 0, _READ_FORMAT, _USER_ONLY, 0, 0, 0)
    attributes = ctypes.create_string_buffer(packed, size)
    library = ctypes.CDLL(None, use_errno=True)
    fd = int(library.syscall(number, attributes, _THIS_THREAD, _ANY_CPU, group, _CLOSE_ON_EXEC))
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return fd
