"""A light sampler of one thread's stack: it names the functions that take the time, which no counter can.

A separate thread looks at the frames of the watched thread forty times a second at first, later as often as a
thousandth of a core allows. It sorts what it sees into *fetch* and *collate* (making a batch) and *step*
(working on one) by unstarve's own frames further out; waiting for a batch that others make is neither. The
thread's state tells whether it wants a CPU or is blocked. The delay of the look itself tells whether it ran
Python or native code: native code releases the interpreter lock, Python makes the sampler wait for it and
then waits itself, so that its CPU time since the last look has to tell. For the same reason Python code that
runs for less than the switch interval (5 ms) is often seen only at its next call that releases the lock. The
sampler's own CPU time is recorded, too.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from unstarve.collect.counters import PythonCounters, open_counters
from unstarve.collect.sampling.bare_thread import BareThread
from unstarve.collect.sampling.frame_names import (
    CALL,
    COLLATE,
    FETCH,
    FETCHING,
    HOST,
    INSIDE_FETCH,
    RECORDING,
    TORCH,
    Naming,
    called_by,
    collated_by,
    fetched_by,
    kind_of,
)
from unstarve.collect.sampling.line_expression import works_on_torch

INTERVAL_S = 0.025
_LATER_INTERVAL_S = 0.1
LONGEST_INTERVAL_S = 1.0
_FIRST_LOOKS = 40
"""Enough to tell large from small; later looks add certainty at a price that nobody feels."""
_SHARE = 0.001
"""Of a core, for looking and reporting after the first looks."""
_REPORT_S = 0.25
_REPORT_SHARE = 0.2
"""Of the time so far: reports become rarer, so that those of a long run do not fill its file."""
_MOST_FUNCTIONS = 200
_MOSTLY = 0.5
_LATE = 0.6
"""Of the interpreter's switch interval: a look this late had to interrupt Python code."""

Key = tuple[str, str, str, int, bool, bool]
"""place, function, file, first line, wants a CPU, torch: the fields of `Sampled` without its seconds."""


LookOn = Callable[[int, str | None, int, int], float]


class StackSampler:
    """Watches the thread that creates it. `report` is called now and then with the findings so far.

    `look_on` is called at every look, for other work that must not burden the watched thread: with the time,
    what the thread was doing (`Sampled.place`; None: it waits), and its nanoseconds on a CPU and waiting for
    one (−1: not known). It returns the CPU seconds of work that has its own pace: looks do not become rarer
    because of it. Between two looks, at most `longest_s` pass.
    Raises `OSError` or `RuntimeError` where the thread cannot be watched or no thread can be started.
    """

    def __init__(
        self,
        report: Callable[..., object],
        lose: Callable[[str], object],
        look_on: LookOn,
        longest_s: float = LONGEST_INTERVAL_S,
    ) -> None:
        self._longest_s = longest_s
        self._report = report
        self._look_on = look_on
        self._lose = lose
        self._ident = threading.get_ident()
        self._watched = open_counters()  # opened by the watched thread, so that they are its counters
        self._clock_id = _cpu_clock(self._ident)
        self._task_stat = f"/proc/self/task/{threading.get_native_id()}/stat".encode()
        self._seconds: dict[Key, float] = {}
        self._began = self._reported = time.perf_counter()
        self.own_cpu_s = self._paced_cpu_s = 0.0
        self._looks = 0
        self._looking: BareThread | None = BareThread(self._run)
        self.paused = False
        _samplers.add(self)

    def resume(self) -> None:
        """Go on looking after a fork; only the watched thread may say so."""
        if self.paused and self in _samplers and threading.get_ident() == self._ident:
            self.paused = False
            with contextlib.suppress(RuntimeError):  # no more threads
                self._looking = BareThread(self._run)

    def pause(self) -> None:
        """Stop looking; the sampler's thread has ended when this returns."""
        self.paused = True
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.end()

    def close(self) -> None:
        """Stop looking and report one last time."""
        if self in _samplers:
            self.abandon()
            self.pause()
            self._tell()

    def abandon(self) -> None:
        """Forget the sampler in a forked child, where its thread does not exist."""
        _samplers.discard(self)

    def _run(self, stop: _thread.LockType) -> None:
        try:
            self._look(stop)
        except Exception as error:  # a defect of ours must not print into the user's terminal
            self._lose(f"the stack sampler stopped early, so the report may miss functions: {error!r}")

    def _look(self, stop: _thread.LockType) -> None:
        own, own_before_s = open_counters(), self.own_cpu_s
        looked = time.perf_counter()
        wanted_ns, own_queued_s = _wanted(*self._spent_ns()), _queued_s(own)
        interval_s = self._interval_s()
        while not stop.acquire(timeout=interval_s):
            now = time.perf_counter()
            frame = sys._current_frames().get(self._ident)
            if frame is None:
                return
            (cpu_ns, queued_ns), own_queued_now_s = self._spent_ns(), _queued_s(own)
            wanted_now_ns = _wanted(cpu_ns, queued_ns)
            wanted_s = (wanted_now_ns - wanted_ns) / 1e9
            late_s = now - looked - interval_s - (own_queued_now_s - own_queued_s)
            runs_python = late_s > _LATE * sys.getswitchinterval()
            blocked = _is_blocked(self._task_stat)
            wants_cpu = wants_a_cpu(
                blocked, wanted_s / (now - looked), wanted_s / late_s if runs_python else 0.0
            )
            key = _place(frame, wants_cpu, runs_python=runs_python)
            del frame  # a frame kept here would keep the user's objects alive
            if key is not None and (key in self._seconds or len(self._seconds) < _MOST_FUNCTIONS):
                self._seconds[key] = self._seconds.get(key, 0.0) + (now - looked)
            wanted_ns, own_queued_s = wanted_now_ns, own_queued_now_s
            place = None if key is None else key[0]
            self._paced_cpu_s += self._look_on(time.perf_counter_ns(), place, cpu_ns, queued_ns)
            self.own_cpu_s = own_before_s + time.thread_time()
            if now - self._reported > max(_REPORT_S, _REPORT_SHARE * (now - self._began)):
                self._tell()
                self._reported = now
            self._looks += 1
            interval_s = self._interval_s()
            looked = time.perf_counter()

    def _interval_s(self) -> float:
        return min(interval_after(self._looks, self.own_cpu_s - self._paced_cpu_s), self._longest_s)

    def _tell(self) -> None:
        found = [(*key, seconds) for key, seconds in list(self._seconds.items())]
        self._report(found=found, cpu_s=self.own_cpu_s)

    def _spent_ns(self) -> tuple[int, int]:
        """Time of the watched thread on a CPU, and waiting for one; −1 where that is not counted."""
        return time.clock_gettime_ns(self._clock_id), self._watched.queued()


def wants_a_cpu(blocked: bool | None, wanted: float, wanted_of_delay: float) -> bool:
    """Whether the watched thread computes or would if it had a core.

    `blocked` is its state during the look; None if unknown. `wanted` is the share of the time since the last
    look in which it wanted a CPU. `wanted_of_delay` is that time relative to the delay of the look, 0 without
    one: a thread that used that much held the interpreter lock, and now waits for it.
    """
    if blocked is None:
        return wanted > _MOSTLY
    return not blocked or wanted_of_delay > _MOSTLY


def interval_after(looks: int, own_cpu_s: float) -> float:
    """Seconds until the next look: few at first, then by what looks have cost so far."""
    if looks < _FIRST_LOOKS:
        return INTERVAL_S
    return min(max(_LATER_INTERVAL_S, own_cpu_s / looks / _SHARE), LONGEST_INTERVAL_S)


_samplers: set[StackSampler] = set()
"""The sampler of this process, while it runs."""


def _before_fork() -> None:
    """Stop the sampler's thread: from Python 3.12 on, forking a process with several threads warns.

    Some versions count the threads after all hooks have run, so that no hook may start it again.
    """
    for sampler in list(_samplers):
        sampler.pause()


os.register_at_fork(before=_before_fork, after_in_child=_samplers.clear)


def _cpu_clock(ident: int) -> int:
    clock_of: Callable[[int], int] | None = getattr(time, "pthread_getcpuclockid", None)
    if clock_of is None:
        raise OSError("threads have no CPU clock here")  # macOS
    return clock_of(ident)


def _is_blocked(task_stat: bytes) -> bool | None:
    """Whether a thread sleeps or waits for a disk: "27 (python) S 1 …". None where that cannot be read."""
    try:
        fd = os.open(task_stat, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        state = os.read(fd, 256).rpartition(b")")[2].split()[:1]
    except OSError:
        return None
    finally:
        os.close(fd)
    return None if not state else state[0] in (b"S", b"D")


def _wanted(cpu_ns: int, queued_ns: int) -> int:
    return cpu_ns + max(queued_ns, 0)


def _queued_s(counters: PythonCounters) -> float:
    return max(counters.queued(), 0) / 1e9


def _place(innermost: FrameType, wants_cpu: bool, *, runs_python: bool) -> Key | None:
    """What a stack says; None when the thread waits for a batch."""
    place, in_torch, on_host, recording = "step", False, False, False
    naming = Naming()
    outer: FrameType | None = innermost
    while outer is not None:
        module = str(outer.f_globals.get("__name__"))
        kind = _kinds.get(module)
        if kind is None:
            kind = _kinds[module] = kind_of(module)
        if kind & RECORDING:
            if naming.is_final:
                return None
            recording = True
        elif recording and not kind & INSIDE_FETCH:
            return None  # the recording, but not that of a fetch
        elif module == FETCHING and (found := _fetch(outer, naming, records=recording)) is not None:
            place = found
            break
        naming.pass_through(outer, module, kind)
        in_torch = in_torch or kind & TORCH > 0
        on_host = on_host or kind & HOST > 0
        outer = outer.f_back
    if naming.name is None:
        return None
    native = wants_cpu and not runs_python
    step_in = naming.frame if place == "step" else None
    computes = in_torch or (native and step_in is not None and works_on_torch(step_in))
    return place, *naming.name, wants_cpu, computes and not on_host


def _fetch(frame: FrameType, naming: Naming, *, records: bool) -> str | None:
    """The place, if this frame of the probe calls the user's code; names it if no frame inside does.

    Python code is often seen at its next call. A frame that has only begun, or that `records` what came
    before it, is therefore not what took the time.
    """
    code = frame.f_code
    begins = not naming.is_final and frame.f_lineno == code.co_firstlineno
    if code.co_qualname == FETCH and not begins:
        naming.name = naming.name if naming.is_final else fetched_by(frame)
        return "fetch"
    if code.co_qualname == CALL and not begins:
        naming.name = naming.name if naming.is_final else called_by(frame)
        return "fetch"
    if code.co_qualname == COLLATE and not begins and not records:
        naming.name = naming.name if naming.is_final else collated_by(frame)
        return "collate"
    return None


_kinds: dict[str, int] = {}
"""By module."""
