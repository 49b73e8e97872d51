"""Packed rows ⇄ arrays with a column per field, and which rows are valid."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstarve.record import format as f
from unstarve.record.meta_values import LATEST_NS, MOST_BYTES

Packed = tuple[int, bytes]
"""Row size, and rows of that size."""
Rows = NDArray[Any]
"""A structured array: `format.ROWS` declares its fields."""
Mask = NDArray[np.bool_]

WHOLE = 10_000
"""All of the time, in hundredths of a percent."""
_TYPES = {"H": "<u2", "I": "<u4", "i": "<i4", "Q": "<u8", "q": "<i8", "32s": "S32"}


@functools.cache
def layout(kind: int, row_size: int | None = None) -> np.dtype[Any]:
    """The columns of a kind in rows of this size; fields that a later version appended are left out."""
    declared = f.ROWS[kind].__annotations__
    types = [np.dtype(_TYPES[one.__metadata__[0]]) for one in declared.values()]
    offsets = [sum(one.itemsize for one in types[:place]) for place in range(len(types))]
    size = f.ROW_KINDS[kind].size if row_size is None else row_size
    return np.dtype({"names": list(declared), "formats": types, "offsets": offsets, "itemsize": size})


def rows_of(kind: int, packed: Iterable[Packed]) -> Rows:
    """All rows of a kind."""
    by_size: dict[int, list[bytes]] = {}
    for row_size, payload in packed:
        by_size.setdefault(row_size, []).append(payload)
    plain = layout(kind)
    found = [np.frombuffer(b"".join(some), layout(kind, size)) for size, some in by_size.items()]
    if len(found) == 1:
        return found[0].astype(plain, copy=False)
    return np.concatenate([np.zeros(0, plain), *(one.astype(plain) for one in found)], dtype=plain)


def valid(kind: int, rows: Rows) -> Mask:
    """Which rows a reader accepts: a file may hold anything."""
    return _VALID[kind](rows)


def _in_order(rows: Rows, *names: str) -> Mask:
    """Moments that follow each other."""
    found: Mask = rows[names[-1]] <= LATEST_NS
    for before, after in pairwise(names):
        found &= rows[before] <= rows[after]
    return found


def _at_most(rows: Rows, limit: int, *names: str) -> Mask:
    found = np.ones(len(rows), bool)
    for name in names:
        found &= rows[name] <= limit
    return found


def _batch(rows: Rows) -> Mask:
    spent = ("sampler_ns", "wait_cpu_ns", "wait_queued_ns", "step_cpu_ns", "step_queued_ns")
    times = _in_order(rows, "ask_ns", "got_ns") & _at_most(rows, LATEST_NS, *spent)
    return times & _at_most(rows, MOST_BYTES, "nbytes")


def _work(rows: Rows) -> Mask:
    fetching = ("cpu_ns", "system_ns", "queued_ns", "delay_ns", "major_faults", "switches", "slow_ns")
    collating = ("collate_cpu_ns", "collate_system_ns", "collate_queued_ns")
    times = _in_order(rows, "received_ns", "begin_ns", "collate_ns", "done_ns")
    counts = _at_most(rows, LATEST_NS, *fetching, *collating)
    return times & counts & _at_most(rows, MOST_BYTES, "asked_bytes", "storage_bytes")


def _pulse(rows: Rows) -> Mask:
    memory = ("storage_bytes", "rss_bytes", "shared_bytes", "shm_bytes", "shm_total_bytes")
    return _at_most(rows, LATEST_NS, "at_ns", "cpu_ns", "queued_ns") & _at_most(rows, MOST_BYTES, *memory)


def _gauge(rows: Rows) -> Mask:
    counts = _at_most(rows, MOST_BYTES, "used_bytes", "total_bytes")
    return _in_order(rows, "at_ns") & _at_most(rows, 100, "percent") & counts


def _engines(rows: Rows) -> Mask:
    counts = _at_most(rows, MOST_BYTES, "power_mw", "received_bytes_per_s", "sent_bytes_per_s")
    return _in_order(rows, "at_ns") & _at_most(rows, 100, "jpeg_percent") & counts


def _copy(rows: Rows) -> Mask:
    times = _in_order(rows, "begin_ns", "end_ns") & _at_most(rows, LATEST_NS, "device_ns", "host_ns")
    return times & _at_most(rows, MOST_BYTES, "nbytes")


def _meeting(rows: Rows) -> Mask:
    moments = ("begin_ns", "end_ns", "left_ns", "before_ns", "within_ns", "after_ns")
    found = _in_order(rows, "begin_ns", "end_ns", "at_ns")
    for name in moments:
        found &= rows[name] <= rows["at_ns"]
    return found


def _memory(rows: Rows) -> Mask:
    counts = [name for name in f.MemoryRow._fields if name not in ("at_ns", "pressure")]
    return _in_order(rows, "at_ns") & _at_most(rows, MOST_BYTES, *counts) & _at_most(rows, WHOLE, "pressure")


_VALID: dict[int, Callable[[Rows], Mask]] = {
    f.BATCH: _batch,
    f.WORK: _work,
    f.SENT: lambda r: _in_order(r, "put_ns", "begin_ns", "end_ns") & _at_most(r, LATEST_NS, "cpu_ns"),
    f.RECEIVED: lambda r: _in_order(r, "arrived_ns", "ready_ns", "pinned_ns"),
    f.STALL: lambda r: _in_order(r, "ask_ns", "got_ns") & (r["stall_ns"] <= r["got_ns"]),
    f.GAUGE: _gauge,
    f.COPY: _copy,
    f.ENGINES: _engines,
    f.PULSE: _pulse,
    f.BACKWARD: lambda r: _in_order(r, "at_ns"),
    f.MEETING: _meeting,
    f.WINDOW: lambda r: r["steps"] > 0,
    f.MEMORY: _memory,
    f.COUNT: lambda r: _at_most(r, LATEST_NS, "end_ns", "step_ns", "samples") & (r["number"] > 0),
    f.BUCKET: lambda r: _at_most(r, MOST_BUCKET, "bucket") & (r["measure"] <= f.STEPS),
}
MOST_BUCKET = 4319
"""The bucket of `LATEST_NS`."""
