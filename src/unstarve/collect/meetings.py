"""When a rank arrives where ranks meet: the time that its training thread is blocked in collectives.

Ranks leave an exchange together, so the one that is blocked least came last, and clocks of different
machines need not be compared. Four places block: ``Work.wait``, in which every collective ends that the
training waits for; ``wait_tensor``, in which those of DTensor end; the broadcast of buffers at the beginning
of a forward pass; and the end of a backward pass, in which DistributedDataParallel waits for its buckets. The
first three are timed around the call. The last is inside of torch's C++: autograd calls functions when all
gradients are computed, in the order in which they were queued, so a function that is queued first is called
before the one that waits.

Only times are read: tensors, hooks that the script registered and the order of all work stay as they are.
Code that ``torch.compile`` compiles waits inside of what it has compiled, which is not seen.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from unstarve.collect.training_thread import training_thread

_clock = time.perf_counter_ns


class Met(NamedTuple):
    """What happened since the batch before was asked for; times in ns, 0 for what did not happen."""

    calls: int
    begin_ns: int
    """The first backward pass began."""
    end_ns: int
    """The last one ended."""
    before_ns: int
    """Blocked before the first backward pass, or in a step without one."""
    within_ns: int
    """Blocked in backward passes."""
    after_ns: int
    """Blocked after the last one."""
    left_ns: int
    """The last exchange was over."""


class Meetings:
    """Adds up where the training thread is blocked. It is the only thread that is watched."""

    def __init__(self) -> None:
        self.watching = False
        self._thread = 0
        self._clear()

    def _clear(self) -> None:
        self._count = self._begin_ns = self._end_ns = self._left_ns = 0
        self._before_ns = self._within_ns = self._after_ns = 0
        self._inside = False
        """A backward pass is running."""
        self._finished_ns = 0
        """All gradients of that pass are computed."""

    def start(self) -> None:
        """Watch the thread that trains."""
        self._thread = training_thread()
        self.watching = True

    def stop(self) -> None:
        """Watch no more."""
        self.watching = False
        self._clear()

    def take(self) -> Met | None:
        """What happened since the last call; None if nothing did."""
        if not self._count and not self._begin_ns:
            return None
        found = Met(
            self._count,
            self._begin_ns,
            self._end_ns,
            self._before_ns,
            self._within_ns,
            self._after_ns,
            self._left_ns,
        )
        self._clear()
        return found

    def blocking(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a call that returns when all ranks have arrived."""

        def blocked(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():  # before anything that a compiler cannot look into
                return original(*args, **kwargs)
            if not self.watching or self._finished_ns or threading.get_ident() != self._thread:
                return original(*args, **kwargs)
            begin_ns = _clock()
            try:
                return original(*args, **kwargs)
            finally:
                self._add(begin_ns, _clock())

        return blocked

    def _add(self, begin_ns: int, end_ns: int) -> None:
        self._count += 1
        self._left_ns = end_ns
        if self._inside:
            self._within_ns += end_ns - begin_ns
        elif self._begin_ns:
            self._after_ns += end_ns - begin_ns
        else:
            self._before_ns += end_ns - begin_ns

    def backward(self, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call ``torch.autograd.backward``, and note when this rank has computed its gradients."""
        if self._inside or threading.get_ident() != self._thread:
            return original(*args, **kwargs)
        begin_ns = _clock()
        if self._begin_ns:  # a second backward pass: what blocked since the first one was inside of the pair
            self._within_ns, self._after_ns = self._within_ns + self._after_ns, 0
        else:
            self._begin_ns = begin_ns
        self._inside = True
        handle = self._hook(args, kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            end_ns = _clock()
            if handle is not None:
                handle.remove()
            if self._finished_ns:
                self._add(self._finished_ns, end_ns)
            self._inside, self._finished_ns, self._end_ns = False, 0, end_ns

    def _hook(self, args: Any, kwargs: Any) -> Any:
        """Let autograd call `_finished`, by a hook on what is differentiated; None where it is impossible."""
        roots = args[0] if args else kwargs.get("tensors")
        root = roots if isinstance(roots, torch.Tensor) else next(iter(roots or ()), None)
        if not isinstance(root, torch.Tensor) or root.grad_fn is None:
            return None
        try:
            return root.register_hook(self._begun)  # type: ignore[no-untyped-call]  # torch does not type it
        except Exception:  # compiled autograd, or a version that forbids it: the pass is then seen as a whole
            return None

    def _begun(self, _gradient: Any) -> None:
        torch.autograd.Variable._execution_engine.queue_callback(self._finished)

    def _finished(self) -> None:
        self._finished_ns = _clock()


meetings = Meetings()
os.register_at_fork(after_in_child=meetings.stop)
