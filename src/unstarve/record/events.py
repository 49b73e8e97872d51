"""Rows → events: invalid rows are dropped and counted, the rest are sorted by time."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from unstarve.model import (
    Backward,
    Batch,
    Doing,
    Engines,
    Epoch,
    Meeting,
    Phase,
    Pulse,
    Reading,
    Received,
    Sent,
    Stall,
    StepCopies,
    Work,
)
from unstarve.model.memory_looks import MemoryLook
from unstarve.model.thinned import Thinned
from unstarve.record import format as f
from unstarve.record.meta_values import LATEST_NS
from unstarve.record.rows import WHOLE, Packed, rows_of, valid

UNCOUNTED = Thinned(0, 0, 0, 0, (), ())
"""Of a thinned batch whose `CountRow` has not been looked up yet."""


def unpacked(kind: int, packed: Iterable[Packed]) -> Iterator[Any]:
    """The rows of a kind, as `format.ROWS` declares them, without fields that a later version appended."""
    layout, row = f.ROW_KINDS[kind], f.ROWS[kind]
    for row_size, payload in packed:
        known = struct.Struct(f"{layout.format}{row_size - layout.size}x")
        yield from map(row._make, known.iter_unpack(payload))


def events_of(kind: int, packed: Iterable[Packed]) -> tuple[list[Any], int]:
    """The events in the rows of a kind, in the order of time, and the number of invalid rows."""
    event_of, row_of = EVENT_OF[kind], f.ROWS[kind]._make
    rows = rows_of(kind, packed)
    accepted = rows[valid(kind, rows)]
    events = [event_of(row_of(row)) for row in accepted.tolist()]
    if kind in _WHEN:
        events.sort(key=_WHEN[kind])
    return events, len(rows) - len(events)


def _batch(row: f.BatchRow) -> Batch:
    return Batch(
        loader=row.loader,
        epoch=row.epoch,
        position=row.position,
        ask_ns=row.ask_ns,
        got_ns=row.got_ns,
        size=_known(row.size),
        nbytes=_known(row.nbytes),
        nested=bool(row.flags & f.NESTED),
        thread=row.thread,
        own_ns=row.own_ns,
        phase=Phase.REPLAY if row.flags & f.REPLAY else Phase.REAL,
        block=row.block,
        settling=bool(row.flags & f.SETTLING),
        task=_known(row.task),
        ready=_known(row.ready),
        sampler_ns=row.sampler_ns,
        wait_cpu_ns=row.wait_cpu_ns,
        wait_queued_ns=_known(row.wait_queued_ns),
        step_cpu_ns=row.step_cpu_ns,
        step_queued_ns=_known(row.step_queued_ns),
        thinned=UNCOUNTED if row.flags & f.THINNED else None,
    )


def _work(row: f.WorkRow) -> Work:
    return Work(
        loader=None if row.loader == f.NO_LOADER else row.loader,
        iteration=row.iteration,
        task=row.task,
        samples=row.samples,
        received_ns=row.received_ns,
        begin_ns=row.begin_ns,
        collate_ns=row.collate_ns,
        done_ns=row.done_ns,
        cpu_ns=max(row.cpu_ns, 0),
        system_ns=max(row.system_ns, 0),
        queued_ns=_known(row.queued_ns),
        asked_bytes=_known(row.asked_bytes),
        storage_bytes=_known(row.storage_bytes),
        delay_ns=_known(row.delay_ns),
        major_faults=max(row.major_faults, 0),
        switches=max(row.switches, 0),
        collate_cpu_ns=max(row.collate_cpu_ns, 0),
        collate_system_ns=max(row.collate_system_ns, 0),
        collate_queued_ns=_known(row.collate_queued_ns),
        slow_index=_known(row.slow_index),
        slow_ns=max(row.slow_ns, 0),
        opens=row.opens,
        failed=bool(row.flags & f.FAILED),
        weight=0 if row.flags & f.THINNED else 1,
    )


def _sent(row: f.SentRow) -> Sent:
    return Sent(
        task=row.task,
        iteration=row.iteration,
        put_ns=row.put_ns,
        begin_ns=row.begin_ns,
        end_ns=row.end_ns,
        cpu_ns=max(row.cpu_ns, 0),
    )


def _received(row: f.ReceivedRow) -> Received:
    return Received(
        loader=row.loader,
        epoch=row.epoch,
        task=row.task,
        arrived_ns=row.arrived_ns,
        ready_ns=row.ready_ns,
        pinned_ns=row.pinned_ns,
    )


def _stall(row: f.StallRow) -> Stall:
    return Stall(
        loader=row.loader,
        epoch=row.epoch,
        position=row.position,
        device=row.device,
        ask_ns=row.ask_ns,
        got_ns=row.got_ns,
        stall_ns=row.stall_ns,
    )


def _copies(row: f.CopyRow) -> StepCopies:
    return StepCopies(
        loader=row.loader,
        epoch=row.epoch,
        position=row.position,
        begin_ns=row.begin_ns,
        end_ns=row.end_ns,
        device=row.device,
        copies=row.copies,
        nbytes=row.nbytes,
        device_ns=row.device_ns,
        host_ns=row.host_ns,
        pinned=bool(row.flags & f.PINNED),
        non_blocking=bool(row.flags & f.NON_BLOCKING),
        beside=bool(row.flags & f.BESIDE),
    )


def _reading(row: f.GaugeRow) -> Reading:
    return Reading(
        device=row.device,
        at_ns=row.at_ns,
        utilization=None if row.percent < 0 else row.percent / 100,
        memory_used_bytes=_known(row.used_bytes),
        memory_total_bytes=_known(row.total_bytes),
        shared=bool(row.flags & f.SHARED),
    )


def _engines(row: f.EnginesRow) -> Engines:
    return Engines(
        device=row.device,
        at_ns=row.at_ns,
        power_mw=_known(row.power_mw),
        received_bytes_per_s=_known(row.received_bytes_per_s),
        sent_bytes_per_s=_known(row.sent_bytes_per_s),
        jpeg_share=None if row.jpeg_percent < 0 else row.jpeg_percent / 100,
    )


def _pulse(row: f.PulseRow) -> Pulse:
    return Pulse(
        at_ns=row.at_ns,
        doing=Doing(f.PULSE_DOING[row.doing - 1]) if 0 < row.doing <= len(f.PULSE_DOING) else None,
        cpu_ns=_known(row.cpu_ns),
        queued_ns=_known(row.queued_ns),
        storage_bytes=_known(row.storage_bytes),
        rss_bytes=_known(row.rss_bytes),
        shared_bytes=_known(row.shared_bytes),
        shm_bytes=_known(row.shm_bytes),
        shm_total_bytes=_known(row.shm_total_bytes),
    )


def _memory(row: f.MemoryRow) -> MemoryLook:
    known = {
        name: _known(value) for name, value in row._asdict().items() if name not in ("at_ns", "pressure")
    }
    return MemoryLook(row.at_ns, **known, pressure=None if row.pressure < 0 else row.pressure / WHOLE)


def _backward(row: f.BackwardRow) -> Backward:
    return Backward(row.thread, row.at_ns)


def _meeting(row: f.MeetingRow) -> Meeting:
    return Meeting(*row)


EVENT_OF: dict[int, Callable[[Any], Any]] = {
    f.BATCH: _batch,
    f.WORK: _work,
    f.SENT: _sent,
    f.RECEIVED: _received,
    f.STALL: _stall,
    f.GAUGE: _reading,
    f.COPY: _copies,
    f.ENGINES: _engines,
    f.PULSE: _pulse,
    f.BACKWARD: _backward,
    f.MEETING: _meeting,
    f.MEMORY: _memory,
}
"""Valid row → event. An epoch takes several rows: see `epochs_of`."""
_WHEN = {
    f.BATCH: attrgetter("got_ns"),
    f.WORK: attrgetter("done_ns"),
    f.PULSE: attrgetter("at_ns"),
    f.BACKWARD: attrgetter("at_ns"),
    f.MEETING: attrgetter("at_ns"),
    f.MEMORY: attrgetter("at_ns"),
    f.COPY: attrgetter("begin_ns"),
}
"""Events that analysis needs in the order of time."""


def _known(value: int) -> int | None:
    """Counters that could not be read are written as −1."""
    return None if value < 0 else value


def epochs_of(
    begins: Iterable[f.EpochBeginRow],
    ends: Sequence[f.EpochEndRow],
    sampled: Iterable[f.EpochSamplerRow] = (),
    no_grad: Iterable[f.EpochNoGradRow] = (),
) -> tuple[tuple[Epoch, ...], int]:
    """The epochs, and the number of invalid rows: an epoch cannot end before it begins, nor begin twice."""
    sampler_ns = {(row.loader, row.epoch): row.sampler_ns for row in sampled}
    without = {(row.loader, row.epoch) for row in no_grad}
    ended = {(row.loader, row.epoch): row for row in reversed(ends)}  # the first end counts
    epochs: dict[tuple[int, int], Epoch] = {}
    invalid = 0
    for row in begins:
        key = row.loader, row.epoch
        if key in epochs or not row.begin_ns <= row.ready_ns <= LATEST_NS:
            invalid += 1
            continue
        end = ended.get(key)
        if end is not None and not row.begin_ns <= end.ask_ns <= end.end_ns <= LATEST_NS:
            invalid, end = invalid + 1, None
        epochs[key] = Epoch(
            loader=row.loader,
            epoch=row.epoch,
            begin_ns=row.begin_ns,
            ready_ns=row.ready_ns,
            thread=row.thread,
            nested=bool(row.flags & f.NESTED),
            last_ask_ns=None if end is None else end.ask_ns,
            end_ns=None if end is None else end.end_ns,
            error=None if end is None else end.error.rstrip(b"\0").decode(errors="replace") or None,
            sampler_ns=min(sampler_ns.get(key, 0), row.ready_ns - row.begin_ns),
            no_grad=key in without,
        )
    return tuple(epochs.values()), invalid
