"""Copies to a CUDA device in a few of the steps: from which memory, on which stream, and how long they take.

In most steps torch is as it was. While the copies of a step are timed, `WatchedMethod`s stand on
``torch.Tensor``, and each copy lies between two events on the stream that it runs on; `stalls` reads them
later. The more a step copies, the longer the pause before the next one is timed, and with the number of
timed steps the pauses grow: a training of a million steps has about 350.

torch.compile reads ``torch.Tensor`` while it traces. It says when it begins, and a step in which it does is
not timed; without it, or where it cannot say so, none is. Nothing is timed under a tensor mode, while torch
traces, and while a CUDA graph is captured. The first error of our own ends it for good.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import Any, NamedTuple

import torch

from unstarve.collect.copy_patch import Swap, WatchedMethod, copy_patch
from unstarve.collect.device.gpu import has_context
from unstarve.collect.device.wait_marks import (
    Events,
    Mark,
    MarkingPlan,
    StreamKey,
    StreamLane,
    What,
    recycle,
)
from unstarve.cuda_driver import beside_graph_captures, cuda_driver
from unstarve.record import format as f

_METHODS = ("to", "cuda", "copy_")
_FIRST = 8
"""Steps before the first one that is timed."""
_PAUSE = 2
"""Steps that are not timed, for each call that looks like a copy in one that is, and as many more."""
_LOOKUPS = 14
"""Looking a method up costs so much less than a call that is timed."""
_SAME_PAUSE = 24
"""Timed steps; then the pauses double."""
_LONGEST_NS = 2_000_000_000
"""A step that has not ended after this long may have been the last one."""
_MOST_COPIES = 256

_MOST_UNREAD = 64
"""Steps."""

_watches: list[CopyWatch] = []


class _Copy(NamedTuple):
    lane: StreamLane
    flags: int
    nbytes: int
    host_ns: int


class TimedStep(NamedTuple):
    """A step whose copies were timed; there are two events for each copy."""

    what: What
    copies: list[_Copy]

    def rows(self, device_ns: list[int], begin_ns: int, end_ns: int) -> list[f.CopyRow]:
        """A row for each kind of copy, or one that says there was none; times in the order of the copies."""
        loader, _, epoch, position = self.what
        sums: dict[tuple[int, int], list[int]] = {}
        for copy, ns in zip(self.copies, device_ns, strict=True):
            found = sums.setdefault((copy.lane.device, copy.flags), [0, 0, 0, 0])
            for place, amount in enumerate((1, copy.nbytes, ns, copy.host_ns)):
                found[place] += amount
        return [
            f.CopyRow(loader, flags, epoch, position, device, copies, nbytes, begin_ns, end_ns, ns, host_ns)
            for (device, flags), (copies, nbytes, ns, host_ns) in (sums or {(0, 0): [0] * 4}).items()
        ]


class CopyWatch:
    """One per `DeviceClock`, which says how events are recorded and on which streams training computes."""

    def __init__(
        self,
        record: Callable[[MarkingPlan], Events],
        lane: Callable[[StreamKey], StreamLane],
        trains_on: Callable[[StreamKey], bool],
        capturing: Callable[[], bool],
        lose: Callable[[str], None],
    ) -> None:
        self._record = record
        self._lane = lane
        self._trains_on = trains_on
        self._capturing = capturing
        self._lose = lose
        self.step: TimedStep | None = None
        """The step that is under way, if its copies are timed."""
        self.unread: deque[tuple[Mark, Events, TimedStep, int, int]] = deque()
        """Timed steps that are over, with the events before and after each copy, and their begin and end."""
        self._begun: Events = []
        self._ended: Events = []
        self._begin_ns = 0
        self._looked = 0
        """What watching the step has cost, in lookups of a method."""
        self._thread = 0
        self._left = _FIRST
        self._timed = 0
        self._off = False
        self._compiling = False
        self._swap: Swap | None = None
        """How to take the methods away, while they are there."""
        self._methods = [
            WatchedMethod(torch.Tensor, name, self._is_watched, self._around) for name in _METHODS
        ]
        self.own_ns = 0
        _watches.append(self)

    # --- steps --------------------------------------------------------------------------------------------

    def got(self, what: What, got_ns: int) -> None:
        """A batch is there: its step begins."""
        self._left -= 1
        if self._left >= 0 or self._off or what[1] != f.BATCH_WAIT:
            return
        swap = copy_patch()
        try:
            if swap is None or self._capturing() or not self._compiler_tells():
                self._left = _FIRST
                return
            self._thread, self._begin_ns = get_ident(), got_ns
            self._begun, self._ended, self._looked = [], [], 0
            self.step, self._swap = TimedStep(what, []), swap
            swap(self._methods, True)
        except Exception as error:  # a defect of ours must not cost the user the training
            self._give_up(error)

    def asked(self) -> None:
        """The next batch is asked for: the step is over."""
        step, begun, ended = self.step, self._begun, self._ended
        self.drop()
        if step is not None and get_ident() == self._thread:
            pause = _PAUSE * (1 + self._looked // _LOOKUPS) << min(self._timed // _SAME_PAUSE, 40)
            self._timed, self._left = self._timed + 1, pause
            plan = MarkingPlan(tuple(copy.lane for copy in step.copies), (), None)
            self.unread.append(((plan, begun), ended, step, self._begin_ns, time.perf_counter_ns()))

    def read(
        self,
        query: Callable[..., bool],
        elapsed_ms: Callable[..., float],
        write: Callable[[int, int, f.CopyRow], None],
        now_ns: int,
    ) -> None:
        """Write the steps whose events have fired; those on a device that never gets there are given up."""
        unread = self.unread
        while unread and all(query(event) for event in unread[0][1]):
            mark, ended, step, begin_ns, end_ns = unread.popleft()
            device_ns = [max(round(elapsed_ms(*pair) * 1e6), 0) for pair in zip(mark[1], ended, strict=True)]
            for row in step.rows(device_ns, begin_ns, end_ns):
                write(f.COPY, now_ns, row)
            recycle(mark, ended)
        while len(unread) > _MOST_UNREAD:
            given_up = unread.popleft()
            recycle(given_up[0], given_up[1])

    def look_on(self, now_ns: int) -> None:
        """From another thread: no step is watched for long, in case it was the last one."""
        if self.step is not None and now_ns - self._begin_ns > _LONGEST_NS:
            self.drop()
            self._left = _FIRST

    def drop(self) -> None:
        """Leave the step that is under way alone: torch is as it was."""
        self.step = None
        swap, self._swap = self._swap, None
        if swap is not None:
            swap(self._methods, False)

    def close(self) -> None:
        """Watch no more."""
        self._off = True
        self.drop()
        handler = _compile_callbacks()
        if handler is not None and self._compile_begins in handler.start_callbacks:
            handler.remove_start_callback(self._compile_begins)
            handler.remove_end_callback(self._compile_ends)

    def _give_up(self, error: Exception) -> None:
        self._off = True
        self.drop()
        self._lose(f"copies to the GPU are not seen from here on: {error!r}")

    # --- copies -------------------------------------------------------------------------------------------

    def _is_watched(self, tensor: Any, name: str) -> bool:
        try:
            if self.step is None or get_ident() != self._thread or not _is_plain():
                return False
            self._looked += 1
            # Casting complex numbers warns, and the warning names the innermost line of Python.
            if tensor.layout is not torch.strided or tensor.dtype.is_complex:
                return False
            return bool(tensor.is_cuda if name == "copy_" else tensor.is_cpu)
        except Exception as error:  # see `got`
            self._give_up(error)
            return False

    def _around(
        self, tensor: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[Any], None] | None:
        step, before_ns = self.step, time.perf_counter_ns()
        self._looked += _LOOKUPS - 1
        try:
            if step is None or len(step.copies) >= _MOST_COPIES:
                return None
            found = _copy_of(tensor, name, args, kwargs)
            if found is None:
                return None
            source, device, non_blocking = found
            with beside_graph_captures(cuda_driver()):
                key = torch._C._cuda_getCurrentStream(device)
                # As in `DeviceClock`: the owner of a foreign stream may destroy it.
                if self._capturing() or (key[0] and not key[0] % 2):
                    return None
                flags = (f.PINNED if source.is_pinned() else 0) | (f.NON_BLOCKING if non_blocking else 0)
                flags |= 0 if self._trains_on(key) else f.BESIDE
                lane = self._lane(key)
                plan = MarkingPlan((lane,), (), None)
                (begun,) = self._record(plan)
        except Exception as error:  # see `got`
            self._give_up(error)
            return None
        begin_ns = time.perf_counter_ns()
        self.own_ns += begin_ns - before_ns

        def copied(result: Any) -> None:
            end_ns = time.perf_counter_ns()
            try:
                if self.step is not step or type(result) is not torch.Tensor or not result.is_cuda:
                    return
                with beside_graph_captures(cuda_driver()):
                    self._ended += self._record(plan)
                self._begun.append(begun)
                step.copies.append(_Copy(lane, flags, result.nbytes, end_ns - begin_ns))
            except Exception as error:  # see `got`
                self._give_up(error)
            self.own_ns += time.perf_counter_ns() - end_ns

        return copied

    # --- torch.compile ------------------------------------------------------------------------------------

    def _compiler_tells(self) -> bool:
        """Whether torch.compile is idle, and will say when it begins."""
        handler = _compile_callbacks()
        if handler is None:
            return False
        if self._compile_begins not in handler.start_callbacks:  # torch._dynamo.reset() forgets it
            self._compiling = False
            handler.register_start_callback(self._compile_begins)
            handler.register_end_callback(self._compile_ends)
        return not self._compiling

    def _compile_begins(self, _args: Any) -> None:
        self._compiling = True
        self.drop()

    def _compile_ends(self, _args: Any) -> None:
        self._compiling = False


def _compile_callbacks() -> Any | None:
    """Where torch.compile says that it begins; None until it is imported, as every optimizer does."""
    if "torch._dynamo.variables.tensor" not in sys.modules:
        return None
    handler = getattr(sys.modules.get("torch._dynamo"), "callback_handler", None)
    return handler if hasattr(handler, "register_start_callback") else None


def _is_plain() -> bool:
    """Whether an operator does what it says, and nobody else looks: no mode, no tracing, no transform."""
    c = torch._C
    return not (
        c._len_torch_function_stack()
        or c._len_torch_dispatch_stack()
        or c._get_tracing_state() is not None
        or c._functorch.peek_interpreter_stack() is not None
    )


def _copy_of(
    tensor: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, int, bool] | None:
    """The source of a copy to a CUDA device in use, the device, whether it is non-blocking; else None."""
    source = tensor
    if name == "copy_":
        source = args[0] if args else kwargs.get("src")
        device, non_blocking = tensor.device, args[1] if len(args) > 1 else kwargs.get("non_blocking", False)
    else:
        parsed = _target(name, args, kwargs)
        if parsed is None:
            return None
        device, non_blocking = parsed
    if device is None or device.type != "cuda" or type(source) is not torch.Tensor or not source.is_cpu:
        return None
    if source.layout is not torch.strided or not source.numel():
        return None
    index = torch.cuda.current_device() if device.index is None else device.index
    return (source, index, bool(non_blocking)) if has_context(index) else None


def _target(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[torch.device | None, Any] | None:
    """The device that is asked for, and whether without blocking; None for what torch will refuse."""
    try:
        if name == "to":
            known = {key: value for key, value in kwargs.items() if key != "copy"}
            device, _, non_blocking, _ = torch._C._nn._parse_to(*args, **known)
            return device, non_blocking
        asked = args[0] if args else kwargs.get("device")
        device = torch.device("cuda", asked) if type(asked) is int else torch.device(asked or "cuda")
        return device, args[1] if len(args) > 1 else kwargs.get("non_blocking", False)
    except (TypeError, RuntimeError, ValueError):
        return None


def _forget_in_child() -> None:
    for watch in _watches:
        watch._off = True
        watch.drop()


os.register_at_fork(after_in_child=_forget_in_child)
