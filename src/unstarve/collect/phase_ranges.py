"""NVTX ranges around the step and its phases, for a profiler from outside such as Nsight Systems.

    unstarve.step      ├──────────────────────────────────────┤├────────…
    unstarve.…         ├─data─┤├─forward─┤├─backward─┤ ├─optimizer─┤

A step goes from one question for a batch to the next. The forward pass goes from the batch to the first
backward pass or optimizer step, copies and the loss included: nothing is hooked into the model. Ranges are of
NVTX's kind with a beginning and an end, which need not nest: a loop that is left with ``break`` or by an
exception disturbs neither ours nor the script's own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data._utils.worker import get_worker_info  # torch.utils.data is not complete yet

from unstarve.stack_levels import uncounted

SESSION = "NSYS_PROFILING_SESSION_ID"
"""nsys sets it in the processes that it profiles."""


class PhaseRanges(threading.local):
    """The open ranges of each thread. Without NVTX (torch for the CPU) nothing happens."""

    def __init__(self) -> None:
        self._library: Any = getattr(torch._C, "_nvtx", None)
        self._step: int | None = None
        self._phase: int | None = None
        self.asking = False
        """Inside of a question for a batch."""

    def ask(self) -> None:
        """A batch is asked for: the step before is over."""
        self.exhausted()
        if torch.is_grad_enabled():  # validation has no steps
            self._step = self._begin("step")
        self.enter("data")

    def exhausted(self) -> None:
        """There was no further batch."""
        self.enter(None)
        if self._step is not None:
            self._library.rangeEnd(self._step)
            self._step = None

    def enter(self, phase: str | None) -> None:
        """End the phase that is open; begin another unless None."""
        if self._phase is not None:
            self._library.rangeEnd(self._phase)
            self._phase = None
        if phase is not None:
            self._phase = self._begin(phase)

    def _begin(self, name: str) -> int | None:
        return None if self._library is None else self._library.rangeStartA(f"unstarve.{name}")


_ranges: PhaseRanges | None = None
"""Of this process, since its first question for a batch."""


def _forget() -> None:
    global _ranges
    _ranges = None


os.register_at_fork(after_in_child=_forget)


def ranged_next(original: Callable[[Any], Any], first: Callable[[], None]) -> Callable[[Any], Any]:
    """Wrap ``__next__`` of a loader's iterator; `first` is called once, when torch is complete."""

    @uncounted
    def __next__(self: Any) -> Any:
        global _ranges
        if _ranges is None:
            if get_worker_info() is not None:
                return original(self)
            _ranges = PhaseRanges()
            first()
        ranges = _ranges
        if ranges.asking:  # a loader inside of a loader, or a class that calls its parent's method
            return original(self)
        ranges.asking = True
        ranges.ask()
        try:
            batch = original(self)
        except BaseException:  # whatever ends the loop; it is raised on
            ranges.exhausted()
            raise
        finally:
            ranges.asking = False
        ranges.enter("forward")
        return batch

    return __next__


def ranged_backward(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``torch.autograd.backward``."""

    def backward(*args: Any, **kwargs: Any) -> Any:
        ranges = _ranges
        if ranges is None or torch.compiler.is_compiling():
            return original(*args, **kwargs)
        ranges.enter("backward")
        try:
            return original(*args, **kwargs)
        finally:
            ranges.enter(None)

    return backward


def before_optimizer(optimizer: Any, args: Any, kwargs: Any) -> None:
    """A global hook of all optimizers; a compiled step leaves it out."""
    if not torch.compiler.is_compiling() and _ranges is not None:
        _ranges.enter("optimizer")


def after_optimizer(optimizer: Any, args: Any, kwargs: Any) -> None:
    """The same, after the step."""
    if not torch.compiler.is_compiling() and _ranges is not None:
        _ranges.enter(None)
