"""How long the accelerator starves: CUDA events around every wait of the training thread.

An event recorded when training asks for a batch fires once the device has finished all queued work; one
recorded when the batch is there fires at once if the device is idle by then. The time between the two on the
device's own clock is time in which the device had nothing to do but wait for data.

If the device was idle at recent asks, it is first queried whether it is idle again: then the whole wait is
stall and no event is needed. A training that waits for its device in every step would notice even the query,
so after many idle ones it is left out now and then: waits between two idle queries count as stalls, too, and
are discarded if the next query finds work.

Events are read later, after they have fired, and in another thread: while training waits for its device,
every microsecond before the next launch counts. Nothing here ever waits for the device, wakes a device that
training does not use, or lets one of its errors reach training.

Where work is spread over streams, the device is idle when all of them are: a wait is marked on each stream
that training was seen to use, and only the time common to all of them counts. Nothing is marked while a CUDA
graph is being captured.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from unstarve.collect.device.copies import CopyWatch
from unstarve.collect.device.gpu import Gauge, cuda_in_use, has_context
from unstarve.collect.device.wait_marks import (
    Events,
    Mark,
    MarkingPlan,
    StreamKey,
    StreamLane,
    Waited,
    What,
    recycle,
    stalls_of,
)
from unstarve.cuda_driver import beside_graph_captures, cuda_driver
from unstarve.record import format as f

Row = tuple[int | bytes, ...]
_READ_EVERY_NS = 500_000_000
_READ_EVERY = 256
"""Waits. After this time, or this many waits, training reads events itself if nobody has."""
_GAUGE_EVERY_NS = 5_000_000_000
"""A reading takes the driver more than a millisecond; it remembers 14 s."""
_MOST_UNREAD = 1024
"""Waits whose events have not fired. The driver queues about this many launches before it blocks."""
_LEARN_EVERY = 16
"""Asks."""
_FORGET_AFTER = 64
"""Asks. A stream that no optimizer has used for this long belonged to a warm-up."""
_SURE_AFTER = 32
"""Queries in a row that found the device idle."""
_MOST_ASSUMED = 15
_ASSUME_FOR_NS = 100_000_000
"""For this many waits, or this long, the device then counts as idle without a query."""
_MOST_ERRORS = 5
_ALL = 0.95
"""Share of a wait: a stall this long began on an idle device."""

_clocks: list[DeviceClock] = []
"""Never freed: destroying an event in a forked child would call a driver that does not work there."""


class DeviceClock:
    """One per process: `ask` before and `got` after each top-level wait. Finished waits go to `write`.

    `write` takes the kind of a row, the time and the row; `lose` takes a sentence for the report.
    """

    def __init__(self, write: Callable[[int, int, Row], None], lose: Callable[[str], None]) -> None:
        self._write = write
        self._lose = lose
        self._errors = 0
        self._off = False
        """Closed, or given up."""
        self._in_use = False
        """This process has initialized CUDA."""
        self._main_thread = threading.main_thread().ident
        self._thread = self._main_thread
        """The thread that trains: the main one, or the first in which an optimizer was seen at work."""
        self._plan: MarkingPlan | None = None
        self._unread: deque[Waited] = deque()
        self._idle_lately = False
        """The last wait that was read began on an idle device."""
        self._idle_looks = 0
        """In a row."""
        self._look_by_ns = 0
        self._sure: Mark | None = None
        """The mark of the next wait if the device counts as idle without a query."""
        self._assumed: list[tuple[What, int, int]] = []
        """Such waits since the last query, with their beginning and end."""
        self._reading = threading.Lock()
        # Without the Python around them.
        base = getattr(torch._C, "_CudaEventBase", torch.cuda.Event)
        self._record: Callable[..., None] = base.record
        self._query: Callable[..., bool] = base.query
        self._elapsed_ms: Callable[..., float] = base.elapsed_time
        streams = getattr(torch._C, "_CudaStreamBase", torch.cuda.Stream)
        self._is_done: Callable[..., bool] = streams.query
        self._capturing: Callable[[], bool] = getattr(
            torch._C, "_cuda_isCurrentStreamCapturing", torch.cuda.is_current_stream_capturing
        )
        self._free: dict[int, list[torch.cuda.Event]] = {}
        self._gauges: dict[int, Gauge | None] = {}
        self._next_read_ns = self._next_gauge_ns = 0
        self._asks = self._planned = 0
        """Number of asks so far, and the one at which the plan was made."""
        self._optimizers: WeakKeyDictionary[Optimizer, tuple[int, ...]] = WeakKeyDictionary()
        """The devices of each one's parameters."""
        self._trained: tuple[int, ...] = ()
        """Devices of all parameters that were stepped."""
        self._stepped: dict[StreamKey, int] = {}
        """Streams on which an optimizer ran, and the ask at which each was last seen."""
        self._hook: Any = None
        self._own_ns = 0
        self._copies = CopyWatch(self._recorded, self._lane, self._trains_on, self._is_capturing, lose)
        _clocks.append(self)

    # --- around a wait ------------------------------------------------------------------------------------

    def ask(self) -> Mark | None:
        """Training begins to wait: returns the mark for `got`; None where nothing can be timed."""
        if self._copies.step is not None:
            self._copies.asked()
        sure = self._sure
        if sure is not None and get_ident() == self._thread:
            self._asks += 1
            return sure
        if self._off or not (self._in_use or self._comes_into_use()):
            return None
        if get_ident() != self._thread:
            return None
        self._asks += 1
        try:
            if self._capturing():
                self._found(None)
                return None
            plan = self._plan
            if plan is None or self._asks - self._planned >= _LEARN_EVERY or _has_moved(plan):
                plan = self._plan = self._make_plan()
            if self._idle_lately and self._is_idle(plan):
                self._found(plan)
                return plan, []
            self._found(None)
            return plan, self._recorded(plan)
        except Exception as error:  # a broken context is for training to discover, not for us to report
            self._fail(error)
            return None

    def got(self, mark: Mark, what: What, ask_ns: int, got_ns: int) -> None:
        """The wait is over: it lasted from `ask_ns` to `got_ns` on the host's clock."""
        self._copies.got(what, got_ns)
        if mark is self._sure:
            self._assumed.append((what, ask_ns, got_ns))
            if len(self._assumed) == _MOST_ASSUMED or got_ns > self._look_by_ns:
                self._sure = None
            return
        try:
            if mark[1] and self._capturing():
                recycle(mark, [])  # a capture began during the wait, which cannot be timed
                return
            ended = self._recorded(mark[0]) if mark[1] else []
            self._unread.append((mark, ended, what, ask_ns, got_ns))
            self._look_by_ns = ask_ns + _ASSUME_FOR_NS
            if self._idle_looks >= _SURE_AFTER and got_ns < self._look_by_ns:
                self._sure = mark[0], []
            if got_ns >= self._next_read_ns or len(self._unread) >= _READ_EVERY:
                self._next_read_ns = got_ns + _READ_EVERY_NS
                self.read(got_ns)
        except Exception as error:  # see `ask`
            self._fail(error)

    def look_on(self, now_ns: int) -> None:
        """Read events that have fired; called again and again by a thread beside training."""
        if self._off or not self._asks:
            return
        self._copies.look_on(now_ns)
        try:
            self._next_read_ns = now_ns + _READ_EVERY_NS
            self.read(now_ns)
            plan = self._plan
            if plan is not None and now_ns >= self._next_gauge_ns:
                devices = {lane.device for lane in plan.lanes}
                self.read_gauges(devices, now_ns)
                self._read_engines(devices, now_ns)
        except Exception as error:  # see `ask`
            self._fail(error)

    def read(self, now_ns: int) -> None:
        """Write the waits whose events have fired, and leave the others for later."""
        if not self._reading.acquire(blocking=False):
            return  # another thread is reading
        try:
            unread = self._unread
            with beside_graph_captures(cuda_driver()):
                while unread and all(self._query(event) for event in unread[0][1]):
                    mark, got, what, ask_ns, got_ns = unread.popleft()
                    stalls = stalls_of(mark, got, got_ns - ask_ns, self._elapsed_ms)
                    for device, stall_ns in stalls:
                        row = f.StallRow(*what, device, 0, ask_ns=ask_ns, got_ns=got_ns, stall_ns=stall_ns)
                        self._write(f.STALL, now_ns, row)
                    if got:
                        all_ns = (got_ns - ask_ns) * _ALL
                        self._idle_lately = all(stall_ns >= all_ns for _, stall_ns in stalls)
                    recycle(mark, got)
                self._copies.read(self._query, self._elapsed_ms, self._write, now_ns)
            while len(unread) > _MOST_UNREAD:
                given_up = unread.popleft()
                recycle(given_up[0], given_up[1])
        finally:
            self._reading.release()

    def read_gauges(self, devices: set[int], now_ns: int) -> None:
        """Write what the driver has recorded about these devices since the last call."""
        self._next_gauge_ns = now_ns + _GAUGE_EVERY_NS
        offset_ns = time.time_ns() - time.perf_counter_ns()
        for device in devices:
            if device not in self._gauges:
                self._gauges[device] = Gauge.of(device)
            gauge = self._gauges[device]
            if gauge is not None:
                memory, flags = gauge.memory(), f.SHARED if gauge.shared() else 0
                for at_ns, percent in gauge.utilization() or [(now_ns + offset_ns, -1)]:
                    row = f.GaugeRow(device, flags, at_ns - offset_ns, percent, *memory)
                    self._write(f.GAUGE, now_ns, row)

    def _read_engines(self, devices: set[int], now_ns: int) -> None:
        """Write what the driver says of these devices now; too slow for the thread that trains."""
        for device in devices:
            gauge = self._gauges.get(device)
            if gauge is not None:
                self._write(f.ENGINES, now_ns, f.EnginesRow(device, 0, now_ns, *gauge.engines()))

    def take_own_ns(self) -> int:
        """Time in ns that the optimizers' hook and timing copies have cost training since the last call."""
        own_ns = self._own_ns + self._copies.own_ns
        self._own_ns = self._copies.own_ns = 0
        return own_ns

    def close(self) -> None:
        """Write what has fired and give up the rest: nobody must wait for it."""
        self._copies.close()
        if self._off or not cuda_in_use():
            return
        self._off, self._sure = True, None
        try:
            now_ns = time.perf_counter_ns()
            self.read(now_ns)
            self.read_gauges(set(self._gauges), now_ns)
        except Exception as error:  # see `ask`
            self._fail(error)

    def _recorded(self, plan: MarkingPlan) -> Events:
        """Record an event on each lane now."""
        events = []
        for _, stream, free in plan.lanes:
            event = free.pop() if free else torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch does not type it
            self._record(event, stream)
            events.append(event)
        return events

    def _found(self, idle: MarkingPlan | None) -> None:
        """After a query: waits that were assumed to be stalls are confirmed or discarded."""
        self._idle_looks = 0 if idle is None else self._idle_looks + 1
        if idle is not None:
            self._unread.extend(((idle, []), [], *waited) for waited in self._assumed)
        self._assumed.clear()

    def _is_idle(self, plan: MarkingPlan) -> bool:
        with beside_graph_captures(cuda_driver()):
            self._idle_lately = all(self._is_done(lane.stream) for lane in plan.lanes)
        return self._idle_lately

    # --- what training uses -------------------------------------------------------------------------------

    def _comes_into_use(self) -> bool:
        """Whether CUDA has been initialized meanwhile; a training without CUDA pays for no hook."""
        self._in_use = cuda_in_use()
        if self._in_use:
            self._hook = register_optimizer_step_post_hook(self._after_step)
        return self._in_use

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """After any optimizer's step: learn the thread, devices and streams of training.

        The hook is never removed: a compiled step is recompiled whenever the set of hooks changes.
        """
        if torch.compiler.is_compiling():  # traced away, without a graph break
            return
        if self._off or (self._asks > _LEARN_EVERY and self._asks % _LEARN_EVERY):
            return
        begin_ns = time.thread_time_ns()
        try:
            devices = self._devices_of(optimizer)
            if devices and not self._capturing():
                self._learn(devices)
        except Exception as error:  # see `ask`
            self._fail(error)
        self._own_ns += time.thread_time_ns() - begin_ns

    def _learn(self, devices: tuple[int, ...]) -> None:
        ident = get_ident()
        if ident == self._main_thread or not self._stepped:
            self._thread = ident
        if ident != self._thread:
            return
        self._trained = tuple(sorted({*self._trained, *devices}))
        for device in devices:
            stream = torch._C._cuda_getCurrentStream(device)
            # Even ids other than 0 are foreign streams, which their owner may destroy while we remember them.
            if stream[0] % 2 or not stream[0]:
                if stream not in self._stepped:
                    self._plan = self._sure = None
                self._stepped[stream] = self._asks

    def _devices_of(self, optimizer: Optimizer) -> tuple[int, ...]:
        devices = self._optimizers.get(optimizer)
        if devices is None:
            used = {p.device for group in optimizer.param_groups for p in group["params"]}
            devices = tuple(sorted({d.index for d in used if d.type == "cuda" and d.index is not None}))
            self._optimizers[optimizer] = devices
        return devices

    def _devices(self) -> tuple[int, ...]:
        """Without an optimizer: the current device, or another in use; never one without a context."""
        current = torch.cuda.current_device()
        if has_context(current):
            return (current,)
        return tuple(device for device in range(torch.cuda.device_count()) if has_context(device))[:1]

    def _make_plan(self) -> MarkingPlan:
        self._planned = self._asks
        for stream, seen in list(self._stepped.items()):
            if self._asks - seen > _FORGET_AFTER:
                del self._stepped[stream]
        devices = self._trained or self._devices()
        current = tuple(torch._C._cuda_getCurrentStream(device) for device in devices)
        lanes = []
        for key in current:
            used = {key: None}  # ordered, without duplicates
            if key[0]:
                # `next()` is called on a side stream, probably a prefetcher's; training is elsewhere.
                used[0, key[1], key[2]] = None
            used.update((stream, None) for stream in self._stepped if stream[1] == key[1])
            lanes += [self._lane(each) for each in used]
        return MarkingPlan(tuple(lanes), current, None if self._trained else torch.cuda.current_device())

    def _is_capturing(self) -> bool:
        return self._capturing()

    def _lane(self, key: StreamKey) -> StreamLane:
        return StreamLane(key[1], _stream(key), self._free.setdefault(key[1], []))

    def _trains_on(self, key: StreamKey) -> bool:
        """Whether training computes on this stream."""
        stepped = [stream for stream in self._stepped if stream[1] == key[1]]
        return key in stepped if stepped or self._plan is None else key in self._plan.current

    def _fail(self, error: Exception) -> None:
        self._errors += 1
        self._plan = None
        self._sure = None
        self._assumed.clear()
        self._unread.clear()
        self._copies.drop()
        if self._errors == _MOST_ERRORS:
            self._off = True
            self._lose(f"GPU stalls are not measured from here on: {error!r}")


def device_clock(write: Callable[[int, int, Row], None], lose: Callable[[str], None]) -> DeviceClock | None:
    """A clock for this process; None where torch was built without CUDA."""
    return DeviceClock(write, lose) if torch.backends.cuda.is_built() else None  # type: ignore[no-untyped-call]  # torch does not type it


def _has_moved(plan: MarkingPlan) -> bool:
    """Whether training uses other streams or devices than when the plan was made."""
    for key in plan.current:
        if torch._C._cuda_getCurrentStream(key[1]) != key:
            return True
    return not plan.lanes or (
        plan.current_device is not None and plan.current_device != torch.cuda.current_device()
    )


def _stream(key: StreamKey) -> torch.cuda.Stream:
    return torch.cuda.Stream(stream_id=key[0], device_index=key[1], device_type=key[2])  # type: ignore[no-untyped-call]  # torch does not type it
