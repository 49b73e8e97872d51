"""From counters to rows: what one wait of training cost, and what making one batch cost.

This runs for every batch. The compiled classes do the same at a fraction of the price; `PythonWait` and
`PythonWork` are their twins.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any, cast

from unstarve.collect.counters import CounterReading, Moment, PythonCounters
from unstarve.native import native
from unstarve.record.writer import PythonLedger

_clock = time.perf_counter_ns
_UNKNOWN = -1
_MOST_OWN_NS = 2**32 - 1
_SHORT_NS = 50_000
_WARY = 2
_DOES_NOT_FIT = "a number of this batch does not fit its field"


class PythonWait:
    """The waits of one iteration over a loader: `begin`, `ask`, then `got`, `record`, `done`; or `leave`."""

    def __init__(self, ledger: PythonLedger, kind: int, layout: str) -> None:
        self._ledger = ledger
        self._kind = kind
        self._layout = struct.Struct(f"<{layout}")
        self.number = 0
        """Of the loader."""
        self.epoch = -1
        self.index = 0
        self.thread = 0
        self.sampler_ns = 0
        """Spent in the sampler during this wait."""
        self.busy = False
        """From `begin` to `got` or `leave`."""
        self.seen_inside = False
        """The batches are timed where they are made. How long the waiting thread was runnable without a CPU
        is then read only around steps in which that may have happened."""
        self._wary = _WARY
        """For this many more waits: a recent step has waited for something, or may have."""
        self.nested = False
        """Whether another wait of this thread was running when this one began."""
        self._work: PythonWork | None = None
        self.has_workers = False
        self.in_order = False
        """Of torch's iterator: whether it has workers, and delivers their batches in order."""
        self.last_task = _UNKNOWN
        """torch's number of the batch that was taken out of the workers' queue last."""
        self.queue_value: Callable[[], int] | None = None
        """Batches in the workers' queue; or, where `queue_room` is not 0, the free places among those."""
        self.queue_room = 0
        self.usual = False
        """Batches are tensors, or plain lists or tuples of them, whose first dimension counts samples."""
        self.tensor_type: type | None = None
        self.ident = 0
        """The thread that iterates."""
        self._counters: PythonCounters
        self._depth = 0
        self._ready = _UNKNOWN
        self._begin_ns = 0
        self._at_ask = self._at_got = Moment(0, 0, _UNKNOWN)

    def use(self, counters: PythonCounters, ident: int, thread: int) -> None:
        """From now on the thread `ident` iterates."""
        self._counters, self.ident, self.thread = counters, ident, thread

    def fetch_by(self, work: PythonWork) -> None:
        """The waiting thread makes its batches itself: `work` reads its counters around the fetch."""
        self._work = work

    def begin(self, source: Any) -> None:
        """A wait begins, for a batch of torch's iterator `source` or of any other iterator."""
        self._begin_ns = _clock()
        self._ready = self._count_ready(source)
        self._counters.fetch = None
        self._depth = self._counters.depth
        self.nested = self._depth > 0
        self.busy = True  # before the depth: a signal may come in between, and `leave` undoes both
        self._counters.depth = self._depth + 1
        self.sampler_ns = 0
        if self._work is not None:
            self._work.task = self.index

    def ask(self) -> int:
        """From here on training waits for the loader alone; returns the time."""
        if self._work is not None:
            self._at_ask = Moment(_clock(), 0, _UNKNOWN)
            return self._at_ask.wall_ns
        self._at_ask = self._counters.ask(self._reads_line)
        if not _waited_for_nothing(self._counters.last_got, self._at_ask):
            self._wary = _WARY
        return self._at_ask.wall_ns

    def sampled(self, since_ns: int) -> None:
        """The sampler has been working since then."""
        self.sampler_ns += _clock() - since_ns

    def got(self) -> int:
        """The batch is there; returns the time."""
        if self._work is not None:
            self._at_got = Moment(_clock(), 0, _UNKNOWN)
        else:
            self._at_got = self._counters.got(self._reads_line)
            self._wary = max(self._wary - 1, 0)
        self._counters.depth = self._depth
        self.busy = False
        return self._at_got.wall_ns

    def leave(self) -> int:
        """The wait ended without a batch; returns the time."""
        self._counters.depth = self._depth
        self.busy = False
        return _clock()

    def task(self, source: Any) -> int:
        """torch's number of the batch that was just delivered; −1 if not known."""
        if not self.has_workers:
            return self.index if self._work else _UNKNOWN
        return int(source._rcvd_idx) - 1 if self.in_order else self.last_task

    def record(self, task: int, size: int, nbytes: int, flags: int, block: int) -> None:
        """Write the row. Raises ValueError when a number does not fit its field."""
        ask, got, read = self._at_ask, self._at_got, True
        if self._work is not None:
            read = self._counters.fetch is not None
            ask, got = self._counters.fetch or (ask, got)
        before = self._counters.last_got or ask
        if read and not self._depth:
            self._counters.last_got = got
        own_ns, self._ledger.own_ns = self._ledger.own_ns, 0
        row = (
            self.number,
            flags,
            self.epoch,
            self.index,
            self.thread,
            size,
            nbytes,
            self._at_ask.wall_ns,
            self._at_got.wall_ns,
            min(own_ns, _MOST_OWN_NS),
            block,
            task,
            self._ready,
            self.sampler_ns,
            got.cpu_ns - ask.cpu_ns if read else 0,
            _in_line_ns(ask, got),
            max(ask.cpu_ns - before.cpu_ns, 0) if read else 0,
            _in_line_ns(before, ask),
        )
        _append(self._ledger, self._kind, self._layout, row)

    def done(self) -> None:
        """unstarve has done its work for this batch, which counts whether it was recorded or not."""
        self.index += 1
        before_ns = self._at_ask.wall_ns - self._begin_ns
        self._ledger.own_ns += before_ns + _clock() - self._at_got.wall_ns

    @property
    def _reads_line(self) -> bool:
        return not self.seen_inside or self._wary > 0

    def _count_ready(self, source: Any) -> int:
        """Batches that are ready: in the queue, or taken out of it and held back for their turn."""
        if self.queue_value is None:
            return _UNKNOWN
        value = self.queue_value()
        held = len(source._task_info) - int(source._tasks_outstanding)
        return (self.queue_room - value if self.queue_room else value) + held


class PythonWork:
    """The batches made by one worker, or by the training process for one loader: `begin` to `record`."""

    def __init__(self, ledger: PythonLedger, kind: int, layout: str) -> None:
        self._ledger = ledger
        self._kind = kind
        self._layout = struct.Struct(f"<{layout}")
        self.loader = 0
        self.iteration = 0
        """How often the loader has started over, as far as this process knows."""
        self.task = 0
        """torch's number of the batch being made."""
        self.received_ns = 0
        """When the indices of this batch arrived here."""
        self.slow_ns = 0
        """Time of its slowest sample."""
        self._begin: CounterReading
        self._collate: CounterReading | int | None = None
        self._done: CounterReading | None = None
        self._was_short = False

    def begin(self, counters: PythonCounters, light: bool) -> None:
        """Begin a batch. Between two batches a worker reads no files: `light` is enough after the first."""
        if light and self._done:
            self._begin = counters.read_light(self._done)
            counters.read_no_files()
        else:
            self._begin = counters.read()
        self._collate = None
        self.slow_ns = 0

    def collate(self, counters: PythonCounters) -> None:
        """The samples are there. If the last collate was short, this one is only timed."""
        self._collate = _clock() if self._was_short else counters.read_light(self._begin)

    def done(self, counters: PythonCounters) -> int:
        """The batch is made, or has failed; returns the time."""
        begin, collate = self._begin, self._collate
        self._done = done = counters.read()
        if collate is None:
            self._collate = done
        else:
            only_timed = isinstance(collate, int)
            began_ns = collate if isinstance(collate, int) else collate.wall_ns
            collated_ns = done.wall_ns - began_ns
            self._was_short = collated_ns < _SHORT_NS
            if only_timed:  # too short to have been off the CPU
                cpu_ns = done.cpu_ns - min(collated_ns, done.cpu_ns - begin.cpu_ns)
                self._collate = done._replace(wall_ns=began_ns, cpu_ns=cpu_ns)
        counters.fetch = (_moment(begin), _moment(done))
        return done.wall_ns

    def record(self, flags: int, samples: int, slow_index: int, opens: int) -> None:
        """Write the row. Raises ValueError when a number does not fit its field."""
        begin, collate, done = (
            self._begin,
            cast(CounterReading, self._collate),
            cast(CounterReading, self._done),
        )
        row = (
            self.loader,
            flags,
            self.iteration,
            self.task,
            samples,
            self.received_ns or begin.wall_ns,
            begin.wall_ns,
            collate.wall_ns,
            done.wall_ns,
            collate.cpu_ns - begin.cpu_ns,
            collate.system_ns - begin.system_ns,
            _difference(collate.queued_ns, begin.queued_ns),
            # Collating rarely reads files: all reading is booked on fetching.
            _difference(done.asked_bytes, begin.asked_bytes),
            _difference(done.storage_bytes, begin.storage_bytes),
            _difference(done.delay_ns, begin.delay_ns),
            done.major_faults - begin.major_faults,
            done.switches - begin.switches,
            done.cpu_ns - collate.cpu_ns,
            done.system_ns - collate.system_ns,
            _difference(done.queued_ns, collate.queued_ns),
            slow_index,
            self.slow_ns,
            opens,
        )
        _append(self._ledger, self._kind, self._layout, row)


def _append(ledger: PythonLedger, kind: int, layout: struct.Struct, row: tuple[int, ...]) -> None:
    try:
        packed = layout.pack(*row)
    except struct.error:
        raise ValueError(_DOES_NOT_FIT) from None
    ledger.append(kind, packed)


def _difference(later: int, earlier: int) -> int:
    """How much a counter went up; unknown if either value is."""
    return _UNKNOWN if later < 0 or earlier < 0 else later - earlier


def _waited_for_nothing(earlier: Moment | None, later: Moment) -> bool:
    return earlier is not None and 0 <= later.waits == earlier.waits


def _in_line_ns(earlier: Moment, later: Moment) -> int:
    """Time runnable without a CPU: all time off the CPU, if there was nothing to wait for."""
    if not _waited_for_nothing(earlier, later):
        return _difference(later.queued_ns, earlier.queued_ns)
    return max(later.read_ns - earlier.read_ns - (later.cpu_ns - earlier.cpu_ns), 0)


def _moment(reading: CounterReading) -> Moment:
    return Moment(reading.wall_ns, reading.cpu_ns, reading.queued_ns, reading.waits, reading.read_ns)


_native: Any = native()
Wait: type[PythonWait] = PythonWait if _native is None else _native.Wait
Work: type[PythonWork] = PythonWork if _native is None else _native.Work
