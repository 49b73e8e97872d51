"""Rows → events, checked: each of them makes sense by itself, and they are in the order of time."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from unstarve.model import Batch, Doing, Epoch, Phase, Pulse, Reading, Received, Sent, Stall, Work
from unstarve.record import format as f
from unstarve.record.metas import LATEST_NS, MOST_BYTES

Row = tuple[Any, ...]
Packed = tuple[int, bytes]
"""Row size, and rows of that size."""


def unpacked(kind: int, packed: Iterable[Packed]) -> Iterator[Row]:
    """The rows of a kind; what a later version appended to them is left out."""
    layout = f.ROW_KINDS[kind]
    for row_size, payload in packed:
        yield from struct.Struct(f"{layout.format}{row_size - layout.size}x").iter_unpack(payload)


def events_of(kind: int, packed: Iterable[Packed]) -> tuple[list[Any], int]:
    """What the rows of a kind say, in the order of time, and how many of them make no sense."""
    event_of = EVENT_OF[kind]
    found = [event_of(row) for row in unpacked(kind, packed)]
    events = [event for event in found if event is not None]
    if kind in _WHEN:
        events.sort(key=_WHEN[kind])
    return events, len(found) - len(events)


def _batch(row: Row) -> Batch | None:
    loader, flags, epoch, index, thread, size, nbytes, ask, got, own_ns, block, *inside = row
    task, ready, sampler_ns, wait_cpu_ns, wait_queued_ns, step_cpu_ns, step_queued_ns = inside
    if not ask <= got <= LATEST_NS or nbytes > MOST_BYTES:
        return None
    if max(sampler_ns, wait_cpu_ns, wait_queued_ns, step_cpu_ns, step_queued_ns) > LATEST_NS:
        return None
    return Batch(
        loader,
        epoch,
        index,
        ask,
        got,
        _known(size),
        _known(nbytes),
        bool(flags & f.NESTED),
        thread,
        own_ns,
        Phase.REPLAY if flags & f.REPLAY else Phase.REAL,
        block,
        bool(flags & f.SETTLING),
        _known(task),
        _known(ready),
        sampler_ns,
        wait_cpu_ns,
        _known(wait_queued_ns),
        step_cpu_ns,
        _known(step_queued_ns),
    )


def _work(row: Row) -> Work | None:
    loader, flags, iteration, task, samples, *rest = row
    received, begin, collate, done, cpu, system, queued, asked, storage, delay, faults, switches, *rest = rest
    collate_cpu, collate_system, collate_queued, slow_index, slow_ns, opens = rest
    if not received <= begin <= collate <= done <= LATEST_NS or max(asked, storage) > MOST_BYTES:
        return None
    collating = max(collate_cpu, collate_system, collate_queued)
    if max(cpu, system, queued, delay, faults, switches, slow_ns, collating) > LATEST_NS:
        return None
    return Work(
        None if loader == f.NO_LOADER else loader,
        iteration,
        task,
        samples,
        received,
        begin,
        collate,
        done,
        max(cpu, 0),
        max(system, 0),
        _known(queued),
        _known(asked),
        _known(storage),
        _known(delay),
        max(faults, 0),
        max(switches, 0),
        max(collate_cpu, 0),
        max(collate_system, 0),
        _known(collate_queued),
        _known(slow_index),
        max(slow_ns, 0),
        opens,
        bool(flags & f.FAILED),
    )


def _sent(row: Row) -> Sent | None:
    task, iteration, put, begin, end, cpu = row
    if not put <= begin <= end <= LATEST_NS or cpu > LATEST_NS:
        return None
    return Sent(task, iteration, put, begin, end, max(cpu, 0))


def _received(row: Row) -> Received | None:
    loader, _, epoch, task, arrived, ready, pinned = row
    if not arrived <= ready <= pinned <= LATEST_NS:
        return None
    return Received(loader, epoch, task, arrived, ready, pinned)


def _stall(row: Row) -> Stall | None:
    loader, _, epoch, position, device, _, ask, got, stall_ns = row
    if not ask <= got <= LATEST_NS or stall_ns > got:
        return None
    return Stall(loader, epoch, position, device, ask, got, stall_ns)


def _reading(row: Row) -> Reading | None:
    device, flags, at, percent, used, total = row
    if at > LATEST_NS or percent > 100 or max(used, total) > MOST_BYTES:
        return None
    utilization = None if percent < 0 else percent / 100
    return Reading(device, at, utilization, _known(used), _known(total), bool(flags & f.SHARED))


def _pulse(row: Row) -> Pulse | None:
    doing, _, at, cpu_ns, queued_ns, *sizes = row
    if max(at, cpu_ns, queued_ns) > LATEST_NS or max(sizes) > MOST_BYTES:
        return None
    known = 0 < doing <= len(f.PULSE_DOING)
    what = Doing(f.PULSE_DOING[doing - 1]) if known else None
    return Pulse(at, what, _known(cpu_ns), _known(queued_ns), *map(_known, sizes))


EVENT_OF: dict[int, Callable[[Row], Any]] = {
    f.BATCH: _batch,
    f.WORK: _work,
    f.SENT: _sent,
    f.RECEIVED: _received,
    f.STALL: _stall,
    f.GAUGE: _reading,
    f.PULSE: _pulse,
}
"""What a row of each kind says, None when it makes no sense; those of epochs take two, see `epochs_of`."""
_WHEN = {f.BATCH: attrgetter("got_ns"), f.WORK: attrgetter("done_ns"), f.PULSE: attrgetter("at_ns")}
"""Analysis goes through these from one to the next."""


def _known(value: int) -> int | None:
    """Counters that could not be read are written as −1."""
    return None if value < 0 else value


def epochs_of(
    begins: Iterable[Row], ends: Sequence[Row], sampled: Iterable[Row] = ()
) -> tuple[tuple[Epoch, ...], int]:
    """Epochs from the rows of their begins and ends and of what the sampler took at their begin.

    Beside them, how many rows make no sense: an epoch that ends before it begins, one that begins twice.
    """
    sampler_ns = {(row[0], row[2]): row[3] for row in sampled}
    ended = {(row[0], row[2]): row for row in reversed(ends)}  # the first end counts
    epochs: dict[tuple[int, int], Epoch] = {}
    nonsense = 0
    for loader, flags, epoch, thread, begin, ready in begins:
        key = loader, epoch
        if key in epochs or not begin <= ready <= LATEST_NS:
            nonsense += 1
            continue
        end = ended.get(key)
        if end is not None and not begin <= end[3] <= end[4] <= LATEST_NS:
            nonsense, end = nonsense + 1, None
        epochs[key] = Epoch(
            loader,
            epoch,
            begin,
            ready,
            thread,
            bool(flags & f.NESTED),
            None if end is None else end[3],
            None if end is None else end[4],
            None if end is None else end[5].rstrip(b"\0").decode(errors="replace") or None,
            min(sampler_ns.get(key, 0), ready - begin),
        )
    return tuple(epochs.values()), nonsense
