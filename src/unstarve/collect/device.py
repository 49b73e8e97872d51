"""How long the accelerator starves: CUDA events around every wait of the training thread.

An event recorded when training asks for a batch fires once the device has finished all that was queued;
one recorded when the batch is there fires at once if the device was idle by then. What lies between the
two on the device's own clock is time in which it had nothing to do and data was what it waited for.
Events are read later, when they have fired; nothing here ever waits for the device, wakes one that
training does not use, or lets an error of its own reach training.

Where work is spread over streams, the device is idle when all of them are: a wait is marked on each stream
that training was seen to use, and only the time common to all counts. While a CUDA graph is being
captured nothing is marked.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from unstarve.collect.cuda import any_capture_allowed, cuda_in_use, has_context
from unstarve.collect.nvml import Gauge
from unstarve.record import format as f

Row = tuple[int | bytes, ...]
What = tuple[int, int, int, int]
"""Of a wait: loader, kind (`BATCH_WAIT`, …), epoch, position."""
_StreamKey = tuple[int, int, int]
"""Id, device, kind of device: what torch calls a stream by."""

_READ_EVERY_NS = 500_000_000
_READ_EVERY = 64
"""Waits. Reading many at once is cheaper than each when it is due: the code is in the caches."""
_GAUGE_EVERY_NS = 5_000_000_000
"""A reading takes the driver more than a millisecond; it remembers the last 14 s."""
_MOST_UNREAD = 1024
"""Waits whose events have not fired. The driver queues about as many launches before it blocks the host."""
_LEARN_EVERY = 16
"""Asks."""
_FORGET_AFTER = 64
"""Asks. A stream that no optimizer has used for so long was one of a warm-up."""
_MOST_ERRORS = 5

_clocks: list[DeviceClock] = []
"""Kept for good: destroying an event in a forked child would call into a driver that does not work there."""


class _Lane(NamedTuple):
    """A stream to mark waits on."""

    device: int
    stream: torch.cuda.Stream
    free: list[torch.cuda.Event]
    """Events of the device that can be used again."""


class _Plan(NamedTuple):
    """Where waits are marked, as long as training stays where it is."""

    lanes: tuple[_Lane, ...]
    current: tuple[_StreamKey, ...]
    """Each device's current stream."""
    current_device: int | None
    """None where optimizers have told which devices count."""


class Mark(NamedTuple):
    """A wait that has begun: an event on each lane."""

    plan: _Plan
    asked: list[torch.cuda.Event]


class _Waited(NamedTuple):
    """A wait that is over but whose events may not have fired."""

    mark: Mark
    got: list[torch.cuda.Event]
    what: What
    ask_ns: int
    got_ns: int


class DeviceClock:
    """One per process. `ask` before and `got` after each top-level wait; finished waits go to `write`.

    `write` takes the kind of a row, the time and the row; `lose` takes a sentence for the report.
    """

    def __init__(self, write: Callable[[int, int, Row], None], lose: Callable[[str], None]) -> None:
        self._write = write
        self._lose = lose
        self._errors = 0
        self._off = False
        """Closed, or given up."""
        self._main_thread = threading.main_thread().ident
        self._thread = self._main_thread
        """The thread that trains: the main one, or the first in which an optimizer was seen at work."""
        self._plan: _Plan | None = None
        self._unread: deque[_Waited] = deque()
        self._free: dict[int, list[torch.cuda.Event]] = {}
        self._gauges: dict[int, Gauge | None] = {}
        self._next_read_ns = self._next_gauge_ns = 0
        self._asks = 0
        self._optimizers: WeakKeyDictionary[Optimizer, tuple[int, ...]] = WeakKeyDictionary()
        """The devices of each one's parameters."""
        self._trained: tuple[int, ...] = ()
        """Devices of all parameters that were stepped."""
        self._stepped: dict[_StreamKey, int] = {}
        """Streams on which an optimizer ran, and at which ask they were seen last."""
        self._hook: Any = None
        self._own_ns = 0
        _clocks.append(self)

    # --- around a wait ------------------------------------------------------------------------------------

    def ask(self) -> Mark | None:
        """Training begins to wait: what `got` is to be given; None where there is nothing to be timed."""
        if self._off or not cuda_in_use():
            return None
        if self._hook is None:  # a training that never meets CUDA pays for no hook
            self._hook = register_optimizer_step_post_hook(self._after_step)
        if threading.get_ident() != self._thread:
            return None
        begin_ns = time.perf_counter_ns()
        self._asks += 1
        mark = None
        try:
            if not torch.cuda.is_current_stream_capturing():
                plan = self._plan
                if plan is None or not self._asks % _LEARN_EVERY or _has_moved(plan):
                    plan = self._plan = self._make_plan()
                mark = Mark(plan, _recorded(plan))
        except Exception as error:  # a broken context is training's to find out about, not ours to report
            self._fail(error)
        self._own_ns += time.perf_counter_ns() - begin_ns
        return mark

    def got(self, mark: Mark, what: What, ask_ns: int, got_ns: int) -> None:
        """The wait is over: `ask_ns` and `got_ns` are its ends on the host's clock."""
        try:
            if torch.cuda.is_current_stream_capturing():
                _recycle(mark, [])  # a capture began during the wait: it cannot be timed
                return
            self._unread.append(_Waited(mark, _recorded(mark.plan), what, ask_ns, got_ns))
            if got_ns >= self._next_read_ns or not self._asks % _READ_EVERY:
                self.read(got_ns)
            if got_ns >= self._next_gauge_ns:
                self.read_gauges({lane.device for lane in mark.plan.lanes}, got_ns)
        except Exception as error:  # see `ask`
            self._fail(error)

    def read(self, now_ns: int) -> None:
        """Write the waits whose events have fired; the others are left for later."""
        self._next_read_ns = now_ns + _READ_EVERY_NS
        with any_capture_allowed():
            while self._unread and _fired(self._unread[0].got):
                mark, got, what, ask_ns, got_ns = self._unread.popleft()
                for device, stall_ns in _stalls(mark, got):
                    self._write(f.STALL, now_ns, (*what, device, 0, ask_ns, got_ns, stall_ns))
                _recycle(mark, got)
        while len(self._unread) > _MOST_UNREAD:
            given_up = self._unread.popleft()
            _recycle(given_up.mark, given_up.got)

    def read_gauges(self, devices: set[int], now_ns: int) -> None:
        """Write what the driver knows of these devices since the last time."""
        self._next_gauge_ns = now_ns + _GAUGE_EVERY_NS
        offset_ns = time.time_ns() - time.perf_counter_ns()
        for device in devices:
            if device not in self._gauges:
                self._gauges[device] = Gauge.of(device)
            gauge = self._gauges[device]
            if gauge is not None:
                memory, flags = gauge.memory(), f.SHARED if gauge.shared() else 0
                for at_ns, percent in gauge.utilization() or [(now_ns + offset_ns, -1)]:
                    self._write(f.GAUGE, now_ns, (device, flags, at_ns - offset_ns, percent, *memory))

    def take_own_ns(self) -> int:
        """What `ask` and the optimizers' hook have cost training since the last call."""
        own_ns, self._own_ns = self._own_ns, 0
        return own_ns

    def close(self) -> None:
        """Write what has fired; what has not is given up, because nobody must wait for it."""
        if self._off or not cuda_in_use():
            return
        self._off = True
        try:
            now_ns = time.perf_counter_ns()
            self.read(now_ns)
            self.read_gauges(set(self._gauges), now_ns)
        except Exception as error:  # see `ask`
            self._fail(error)

    # --- what training uses -------------------------------------------------------------------------------

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """After any optimizer's step: learn thread, devices and streams of training.

        Never taken off again: a compiled step is compiled anew whenever the set of hooks changes.
        """
        if torch.compiler.is_compiling():  # traced away, without a graph break
            return
        if self._off or (self._asks > _LEARN_EVERY and self._asks % _LEARN_EVERY):
            return
        begin_ns = time.perf_counter_ns()
        try:
            devices = self._devices_of(optimizer)
            if devices and not torch.cuda.is_current_stream_capturing():
                self._learn(devices)
        except Exception as error:  # see `ask`
            self._fail(error)
        self._own_ns += time.perf_counter_ns() - begin_ns

    def _learn(self, devices: tuple[int, ...]) -> None:
        ident = threading.get_ident()
        if ident == self._main_thread or not self._stepped:
            self._thread = ident
        if ident != self._thread:
            return
        self._trained = tuple(sorted({*self._trained, *devices}))
        for device in devices:
            stream = torch._C._cuda_getCurrentStream(device)
            # Even ids but 0 are streams that somebody else made, and may destroy while we remember them.
            if stream[0] % 2 or not stream[0]:
                if stream not in self._stepped:
                    self._plan = None
                self._stepped[stream] = self._asks

    def _devices_of(self, optimizer: Optimizer) -> tuple[int, ...]:
        devices = self._optimizers.get(optimizer)
        if devices is None:
            used = {p.device for group in optimizer.param_groups for p in group["params"]}
            devices = tuple(sorted({d.index for d in used if d.type == "cuda" and d.index is not None}))
            self._optimizers[optimizer] = devices
        return devices

    def _devices(self) -> tuple[int, ...]:
        """Where no optimizer has told: the current device, or another in use; never one without a context."""
        current = torch.cuda.current_device()
        if has_context(current):
            return (current,)
        return tuple(device for device in range(torch.cuda.device_count()) if has_context(device))[:1]

    def _make_plan(self) -> _Plan:
        for stream, seen in list(self._stepped.items()):
            if self._asks - seen > _FORGET_AFTER:
                del self._stepped[stream]
        devices = self._trained or self._devices()
        current = tuple(torch._C._cuda_getCurrentStream(device) for device in devices)
        lanes = []
        for key in current:
            used = {key: None}  # in order, each once
            if key[0]:
                # `next()` is called on a side stream: a prefetcher's, most likely, and training is elsewhere.
                used[0, key[1], key[2]] = None
            used.update((stream, None) for stream in self._stepped if stream[1] == key[1])
            lanes += [_Lane(key[1], _stream(each), self._free.setdefault(key[1], [])) for each in used]
        return _Plan(tuple(lanes), current, None if self._trained else torch.cuda.current_device())

    def _fail(self, error: Exception) -> None:
        self._errors += 1
        self._plan = None
        self._unread.clear()
        if self._errors == _MOST_ERRORS:
            self._off = True
            self._lose(f"from here on it is not known how long the GPU waits: {error!r}")


def device_clock(write: Callable[[int, int, Row], None], lose: Callable[[str], None]) -> DeviceClock | None:
    """A clock for this process; None where torch was built without CUDA."""
    return DeviceClock(write, lose) if torch.backends.cuda.is_built() else None  # type: ignore[no-untyped-call]  # torch does not type it


def _has_moved(plan: _Plan) -> bool:
    """Whether training works elsewhere than when the plan was made."""
    for key in plan.current:
        if torch._C._cuda_getCurrentStream(key[1]) != key:
            return True
    return not plan.lanes or (
        plan.current_device is not None and plan.current_device != torch.cuda.current_device()
    )


def _recorded(plan: _Plan) -> list[torch.cuda.Event]:
    """An event on each lane, now."""
    events = []
    for _, stream, free in plan.lanes:
        event = free.pop() if free else torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch does not type it
        event.record(stream)
        events.append(event)
    return events


def _stalls(mark: Mark, got: list[torch.cuda.Event]) -> list[tuple[int, int]]:
    """Device and nanoseconds: idle is what all streams of a device have in common."""
    if len(got) == 1:
        return [(mark.plan.lanes[0].device, max(round(mark.asked[0].elapsed_time(got[0]) * 1e6), 0))]
    found: dict[int, float] = {}
    for asked_lane, asked in zip(mark.plan.lanes, mark.asked, strict=True):
        for got_lane, event in zip(mark.plan.lanes, got, strict=True):
            if asked_lane.device == got_lane.device:
                ms = asked.elapsed_time(event)
                found[got_lane.device] = min(ms, found.get(got_lane.device, ms))
    return [(device, max(round(ms * 1e6), 0)) for device, ms in found.items()]


def _stream(key: _StreamKey) -> torch.cuda.Stream:
    return torch.cuda.Stream(stream_id=key[0], device_index=key[1], device_type=key[2])  # type: ignore[no-untyped-call]  # torch does not type it


def _fired(events: list[torch.cuda.Event]) -> bool:
    return all(event.query() for event in events)  # type: ignore[no-untyped-call]  # torch does not type it


def _recycle(mark: Mark, got: list[torch.cuda.Event]) -> None:
    """Let the events be used again, on their device."""
    if len(mark.plan.lanes) == 1:
        free = mark.plan.lanes[0].free
        free += mark.asked
        free += got
        return
    for events in (mark.asked, got):
        for lane, event in zip(mark.plan.lanes, events, strict=False):
            lane.free.append(event)
