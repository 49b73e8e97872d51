"""A light sampler of one thread's stack: which functions the time goes to, where no counter can tell.

A daemon thread looks at the watched thread's frames some forty times a second. It sorts what it sees into
*fetch* (making a batch) and *step* (working on one), by finding unstarve's own frames further out; waiting
for a batch that others make is neither. The thread's scheduler statistics since the last look tell whether
it wanted a CPU or was blocked. Whether it ran Python or native code is told by the look itself: native code
lets go of the interpreter lock, Python makes the sampler wait for it. The sampler's own CPU time is recorded
beside what it found.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from unstarve.collect.counters import Counters

INTERVAL_S = 0.025
_REPORT_S = 2.0
_MOST_FUNCTIONS = 200
_MOST_LOCALS = 40
_FETCHING = "unstarve.collect.fetching"
_NOT_COMPUTING = {"torch.serialization", "torch.utils.tensorboard.writer"}
_LATE = 0.6
"""Of the interpreter's switch interval: so late is a look when Python code had to be interrupted for it."""

Key = tuple[str, str, str, int, bool, bool]
"""place, function, file, first line, wants a CPU, torch: the fields of `Sampled` but its seconds."""


class StackSampler:
    """Watches the thread that starts it. `report` is called now and then with what was found so far."""

    def __init__(self, report: Callable[..., object]) -> None:
        self._report = report
        self._ident = threading.get_ident()
        self._watched = Counters()  # opened by the watched thread, so that they are its counters
        self._clock_id = time.pthread_getcpuclockid(self._ident)
        self._seconds: dict[Key, float] = {}
        self._stop = threading.Event()
        self._own_cpu_s = 0.0
        self._thread = threading.Thread(target=self._run, name="unstarve-stacks", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop looking and report for the last time."""
        if not self._stop.is_set():
            self._stop.set()
            self._tell()

    def _run(self) -> None:
        own = Counters()
        looked = reported = time.perf_counter()
        wanted_s, own_queued_s = self._wanted_s(), _queued_s(own)
        while not self._stop.wait(INTERVAL_S):
            now = time.perf_counter()
            frame = sys._current_frames().get(self._ident)
            if frame is None:
                return
            wanted_now_s, own_queued_now_s = self._wanted_s(), _queued_s(own)
            wants_cpu = wanted_now_s - wanted_s > 0.5 * (now - looked)
            late_s = now - looked - INTERVAL_S - (own_queued_now_s - own_queued_s)
            key = _place(frame, wants_cpu, runs_python=late_s > _LATE * sys.getswitchinterval())
            del frame  # a frame kept here would keep the user's objects alive
            if key is not None and (key in self._seconds or len(self._seconds) < _MOST_FUNCTIONS):
                self._seconds[key] = self._seconds.get(key, 0.0) + (now - looked)
            wanted_s, own_queued_s = wanted_now_s, own_queued_now_s
            self._own_cpu_s = time.thread_time()
            if now - reported > _REPORT_S:
                self._tell()
                reported = now
            looked = time.perf_counter()

    def _tell(self) -> None:
        found = [(*key, seconds) for key, seconds in list(self._seconds.items())]
        self._report(found=found, cpu_s=self._own_cpu_s)

    def _wanted_s(self) -> float:
        """Seconds that the watched thread was on a CPU or waiting for one."""
        return time.clock_gettime(self._clock_id) + _queued_s(self._watched)


def _queued_s(counters: Counters) -> float:
    return max(counters.quick()[1], 0) / 1e9


def _place(innermost: FrameType, wants_cpu: bool, *, runs_python: bool) -> Key | None:
    """What a look at a stack says; None when the thread waits for a batch."""
    place, in_torch, on_host = "step", False, False
    outer: FrameType | None = innermost
    while outer is not None:
        name = _module(outer)
        if name == _FETCHING and outer.f_code.co_qualname == "Probe.fetch":
            place = "fetch"
            break
        if name.startswith("unstarve.collect.") and name != _FETCHING:
            return None
        in_torch = in_torch or name.startswith("torch.")
        on_host = on_host or name in _NOT_COMPUTING
        outer = outer.f_back
    native = wants_cpu and not runs_python
    computes = in_torch or (place == "step" and native and _handles_tensors(innermost))
    code = innermost.f_code
    return place, code.co_qualname, code.co_filename, code.co_firstlineno, wants_cpu, computes and not on_host


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _handles_tensors(frame: FrameType) -> bool:
    """Whether a function's variables hold tensors: plain ``x @ w`` leaves no frame of torch."""
    try:
        values: list[Any] = list(frame.f_locals.values())[:_MOST_LOCALS]
        return any(isinstance(value, torch.Tensor) for value in values)
    except RuntimeError:  # the variables change under our eyes
        return False
