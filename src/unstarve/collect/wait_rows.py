"""From readings to rows: what a wait of training and what the making of a batch have cost.

The compiled classes do the same at a fraction of the price, which is paid for every batch; `PythonWait` and
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
    """The waits of one iteration over one loader: `begin`, `ask`, then `got`, `record`, `done` or `leave`."""

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
        """What makes its batches is timed where it makes them: how long the waiting thread itself stood in
        line is then asked for only around steps of training that may have done so."""
        self._wary = _WARY
        """For so many waits to come: a step has waited for something a short while ago, or may have."""
        self.nested = False
        """Whether another wait of this thread was running when this one began."""
        self._work: PythonWork | None = None
        self.has_workers = False
        self.in_order = False
        """Of torch's iterator: whether it has workers, and gives their batches by their numbers."""
        self.last_task = _UNKNOWN
        """torch's number of the batch that was taken out of the workers' queue last."""
        self.queue_value: Callable[[], int] | None = None
        """How much lies in the workers' queue; or, where `queue_room` is not 0, what is left of that."""
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
        """From here on the thread `ident` iterates."""
        self._counters, self.ident, self.thread = counters, ident, thread

    def fetch_by(self, work: PythonWork) -> None:
        """The waiting thread makes its batches itself: its counters are read around the fetch, by `work`."""
        self._work = work

    def begin(self, source: Any) -> None:
        """A batch is wanted of torch's iterator `source`, or of any other one."""
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
        """Now nothing but the loader stands between training and its batch; when that was."""
        if self._work is not None:
            self._at_ask = Moment(_clock(), 0, _UNKNOWN)
            return self._at_ask.wall_ns
        self._at_ask = self._counters.ask(self._reads_line)
        if not _waited_for_nothing(self._counters.last_got, self._at_ask):
            self._wary = _WARY
        return self._at_ask.wall_ns

    def sampled(self, since_ns: int) -> None:
        """The sampler has been at work since then."""
        self.sampler_ns += _clock() - since_ns

    def got(self) -> int:
        """The batch is there; when that was."""
        if self._work is not None:
            self._at_got = Moment(_clock(), 0, _UNKNOWN)
        else:
            self._at_got = self._counters.got(self._reads_line)
            self._wary = max(self._wary - 1, 0)
        self._counters.depth = self._depth
        self.busy = False
        return self._at_got.wall_ns

    def leave(self) -> int:
        """There is no batch; when that was."""
        self._counters.depth = self._depth
        self.busy = False
        return _clock()

    def task(self, source: Any) -> int:
        """torch's number of the batch that was just delivered; −1 unknown."""
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
        """All is done that unstarve does for this batch: it counts, recorded or not."""
        self.index += 1
        before_ns = self._at_ask.wall_ns - self._begin_ns
        self._ledger.own_ns += before_ns + _clock() - self._at_got.wall_ns

    @property
    def _reads_line(self) -> bool:
        return not self.seen_inside or self._wary > 0

    def _count_ready(self, source: Any) -> int:
        """Batches that lie ready: in the queue, or taken out of it and held back for their turn."""
        if self.queue_value is None:
            return _UNKNOWN
        told = self.queue_value()
        held = len(source._task_info) - int(source._tasks_outstanding)
        return (self.queue_room - told if self.queue_room else told) + held


class PythonWork:
    """The batches that one worker makes, or the training process for one loader: `begin` to `record`."""

    def __init__(self, ledger: PythonLedger, kind: int, layout: str) -> None:
        self._ledger = ledger
        self._kind = kind
        self._layout = struct.Struct(f"<{layout}")
        self.loader = 0
        self.iteration = 0
        """How often the loader has started over, as this process saw it."""
        self.task = 0
        """torch's number of the batch being made."""
        self.received_ns = 0
        """When the indices of this batch arrived here."""
        self.slow_ns = 0
        """What its slowest sample has taken."""
        self._begin: CounterReading
        self._collate: CounterReading | int | None = None
        self._done: CounterReading | None = None
        self._was_short = False

    def begin(self, counters: PythonCounters, light: bool) -> None:
        """Between two batches a worker reads no files, so that `light` is enough for all but the first."""
        if light and self._done:
            self._begin = counters.read_light(self._done)
            counters.read_no_files()
        else:
            self._begin = counters.read()
        self._collate = None
        self.slow_ns = 0

    def collate(self, counters: PythonCounters) -> None:
        """Samples are there. A short collate is only timed, when the one before was short, too."""
        self._collate = _clock() if self._was_short else counters.read_light(self._begin)

    def done(self, counters: PythonCounters) -> int:
        """The batch is made, or could not be made; when that was."""
        begin, collate = self._begin, self._collate
        self._done = done = counters.read()
        if collate is None:
            self._collate = done
        else:
            only_timed = isinstance(collate, int)
            began_ns = collate if isinstance(collate, int) else collate.wall_ns
            collated_ns = done.wall_ns - began_ns
            self._was_short = collated_ns < _SHORT_NS
            if only_timed:  # so short that it was on a CPU
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
            # Collating reads no files, as a rule: what both have read was read by fetching.
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
    """Counters go up, and what is not known stays so."""
    return _UNKNOWN if later < 0 or earlier < 0 else later - earlier


def _waited_for_nothing(earlier: Moment | None, later: Moment) -> bool:
    return earlier is not None and 0 <= later.waits == earlier.waits


def _in_line_ns(earlier: Moment, later: Moment) -> int:
    """Runnable, but without a CPU: whatever it was not on, if there was nothing to wait for."""
    if not _waited_for_nothing(earlier, later):
        return _difference(later.queued_ns, earlier.queued_ns)
    return max(later.read_ns - earlier.read_ns - (later.cpu_ns - earlier.cpu_ns), 0)


def _moment(reading: CounterReading) -> Moment:
    return Moment(reading.wall_ns, reading.cpu_ns, reading.queued_ns, reading.waits, reading.read_ns)


_native: Any = native()
Wait: type[PythonWait] = PythonWait if _native is None else _native.Wait
Work: type[PythonWork] = PythonWork if _native is None else _native.Work
