"""What a training does that iterates no loader: where its time goes, and which function returns its batches.

A bare thread waits for a moment after torch was imported. If no loader is iterated by then, it looks at the
main thread's stack twenty times a second, or as rarely as a thousandth of a core allows. Only looks into the
training loop count: into code that calls ``backward``, or into the loop around it. The first loader of the
process ends it.

It starts while torch is being imported, so everything that needs torch is imported later. A fork ends it for
good, because a process of several threads should not fork.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import TypeVar

from unstarve.collect.sampling.bare_thread import BareThread
from unstarve.collect.sampling.batch_calls import BatchCall, LoopCode, is_own, loop_code

_AFTER_S = 1.0
"""From the import of torch to the first look."""
_INTERVAL_S = 0.05
_FEWEST_LOOKS = 5
"""Shares of fewer looks would mislead."""
_LONGEST_INTERVAL_S = 1.0
_SHARE = 0.001
"""Of a core, for looking."""
_REPORT_S = 1.0
_REPORT_SHARE = 0.2
"""Of the time so far: reports become rarer."""
_MOST_NAMES = 200
_MOST_SHOWN = 20
_WITHIN = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<lambda>")
"""Code that belongs to the function around it."""

K = TypeVar("K")
Where = tuple[str, str, int]
"""Name, file and line: of a function, or of a line of the loop itself."""


class LoopSampler:
    """Watches the main thread of this process until a loader is iterated."""

    def __init__(self) -> None:
        self._ident = threading.main_thread().ident
        self._seconds = 0.0
        """Seen inside the loop."""
        self._places: dict[Where, float] = {}
        self._functions: dict[tuple[str, int], float] = {}
        """Seconds by file and first line, with everything that the function calls."""
        self._around: set[CodeType] = set()
        """Code that calls a function that trains, such as a loop over steps."""
        self._calls: dict[BatchCall, None] = {}
        """Calls inside the loop that returned batches, in the order in which they were found."""
        self._looks = 0
        """Into the loop."""
        self._thread: BareThread | None = BareThread(self._run)

    def end(self) -> None:
        """Stop looking; the thread has ended when this returns."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.end()

    def tell(self, write: Callable[..., object]) -> None:
        """Write what was seen so far, as a META."""
        largest = sorted(self._places.items(), key=lambda one: -one[1])[:_MOST_SHOWN]
        calls = sorted(self._calls, key=lambda call: (not call.sounds_right, -self._spent(call)))
        write(
            "loop",
            seconds=self._seconds,
            places=[(*where, seconds) for where, seconds in largest],
            call=(*calls[0].fields(), self._spent(calls[0])) if calls else None,
        )

    def _report(self) -> None:
        from unstarve.collect.recorder import recorder  # needs all of torch

        owner = recorder()
        if owner is not None and owner.active:
            self.tell(owner.writer.meta)

    def _spent(self, call: BatchCall) -> float:
        return self._functions.get(call.defined, 0.0)

    def _run(self, stop: _thread.LockType) -> None:
        if stop.acquire(timeout=_AFTER_S):
            return
        looks, interval_s = 0, _INTERVAL_S
        began = looked = time.perf_counter()
        told = 0.0
        while not stop.acquire(timeout=interval_s):
            now = time.perf_counter()
            frame = sys._current_frames().get(self._ident or 0)
            if frame is None:
                return
            with contextlib.suppress(Exception):  # an odd object of the user's: look again
                self._look(frame, now - looked)
            del frame  # a frame kept here would keep the user's objects alive
            if self._looks >= _FEWEST_LOOKS and now - told > max(_REPORT_S, _REPORT_SHARE * (now - began)):
                told = now
                with contextlib.suppress(Exception):  # the report then only says that there is no loader
                    self._report()
            looks += 1
            interval_s = min(max(_INTERVAL_S, time.thread_time() / looks / _SHARE), _LONGEST_INTERVAL_S)
            looked = now

    def _look(self, innermost: FrameType, seconds: float) -> None:
        frames = _own_frames(innermost)
        if not frames or not _is_complete("torch"):
            return
        codes = [loop_code(frame.f_code) for frame in frames]
        inside = next((at for at, code in enumerate(codes) if code.trains), None)
        if inside is not None and inside + 1 < len(frames):
            self._around.add(frames[inside + 1].f_code)
        if inside is None and not any(
            frame.f_code in self._around and code.is_in_loop(frame.f_lineno)
            for frame, code in zip(frames, codes, strict=True)
        ):
            return
        self._looks += 1
        self._seconds += seconds
        _add(self._places, _where(frames, codes), seconds)
        for key in {(frame.f_code.co_filename, frame.f_code.co_firstlineno) for frame in frames}:
            _add(self._functions, key, seconds)
        for frame, code in zip(frames, codes, strict=True):
            self._calls.update(dict.fromkeys(code.returned_batches(frame)))


def _add(seconds_by: dict[K, float], key: K, seconds: float) -> None:
    if key in seconds_by or len(seconds_by) < _MOST_NAMES:
        seconds_by[key] = seconds_by.get(key, 0.0) + seconds


def _own_frames(innermost: FrameType) -> list[FrameType]:
    """The frames of the user's own code, innermost first; none while a module is being imported."""
    frames = []
    frame: FrameType | None = innermost
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return []
        if is_own(frame.f_code.co_filename):
            frames.append(frame)
        frame = frame.f_back
    return frames


def _where(frames: list[FrameType], codes: list[LoopCode]) -> Where:
    """The innermost function of the user, or the line of the loop if it is the loop itself."""
    depth = next((at for at, f in enumerate(frames) if f.f_code.co_name not in _WITHIN), 0)
    frame, code = frames[depth], frames[depth].f_code
    if codes[depth].trains or code.co_name == "<module>":
        line = frame.f_lineno or code.co_firstlineno
        return codes[depth].text(line) or code.co_qualname, code.co_filename, line
    return code.co_qualname, code.co_filename, code.co_firstlineno


def _is_complete(module: str) -> bool:
    found = sys.modules.get(module)
    return found is not None and not getattr(found.__spec__, "_initializing", False)


_sampler: LoopSampler | None = None


def begin() -> None:
    """Watch this process until a loader is iterated; a process that multiprocessing started is left alone.

    Such a process is a worker of a loader, as a rule.
    """
    global _sampler
    if _sampler is None and not any(word.startswith("from multiprocessing.") for word in sys.orig_argv):
        with contextlib.suppress(RuntimeError):  # no more threads: training comes first
            _sampler = LoopSampler()


def end() -> None:
    """A loader is iterated: forget what was seen."""
    global _sampler
    sampler, _sampler = _sampler, None
    if sampler is not None:
        sampler.end()


def tell(write: Callable[..., object]) -> None:
    """The recording ends, and no loader was iterated: write what was seen."""
    sampler = _sampler
    end()
    if sampler is not None:
        sampler.tell(write)


def _before_fork() -> None:
    if _sampler is not None:
        _sampler.end()


def _forget_in_child() -> None:
    global _sampler
    _sampler = None


os.register_at_fork(before=_before_fork, after_in_child=_forget_in_child)
