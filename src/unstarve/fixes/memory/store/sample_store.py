"""The samples of a dataset in one region that many processes read and fill at the same time.

The region describes itself; a process that maps it needs nothing else:

    header   magic, version, sizes, the boot of the machine that made it, bytes used of the arena
    layout   the layout that most samples share (pickled)
    states   one byte per held sample: MISSING, ROW, ODD or NO_ROOM
    spans    offset and length of each sample's bytes in the arena
    columns  one per value that lies in rows: (held, *shape)
    arena    texts, objects and raw bytes, and whole samples of another layout (ODD)

A sample is written under a lock, its state last, so that nobody reads half a sample; a process that dies
while writing releases the lock and leaves the sample MISSING.
"""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unstarve.fixes.memory.region import LARGE_BYTES, SharedRegion
from unstarve.fixes.memory.store.process_locks import LockTimeoutError, RecordLock, fence
from unstarve.fixes.memory.store.sample_layout import Rows, SampleLayout, dumps, loads
from unstarve.fixes.samples.leaves import RAW, Leaf, Raw, large_writer, writer

MISSING, ROW, ODD, NO_ROOM = range(4)

_MAGIC = b"unstarvC"
_VERSION = 1
_HEADER = struct.Struct("<8sIIQQQ40sQ")
_USED_AT = _HEADER.size - 8
_PAGE = 4096
_SPAN_BYTES = 16
_WRITING = 0  # the byte of the lock under which a sample is written


@dataclass(frozen=True)
class StorePlan:
    """Offsets in a region that has room for `held` of a dataset's `samples`."""

    layout: SampleLayout
    samples: int
    held: int
    arena_bytes: int
    layout_bytes: int
    states_at: int
    spans_at: int
    columns_at: tuple[int, ...]
    arena_at: int

    @property
    def size(self) -> int:
        """Bytes of the whole region."""
        return self.arena_at + self.arena_bytes

    @property
    def taken_bytes(self) -> int:
        """Bytes in use when all samples are filled, without the arena: spans are written for blobs only."""
        return self.arena_at if self.layout.in_blobs else self.arena_at - _SPAN_BYTES * self.held


def plan(
    layout: SampleLayout, samples: int, held: int, arena_bytes: int, layout_bytes: int | None = None
) -> StorePlan:
    """Lay out a region; `layout_bytes` is the size of the pickled layout if a region already has one."""
    if layout_bytes is None:
        layout_bytes = len(pickle.dumps(layout))
    states_at = _aligned(_HEADER.size + layout_bytes)
    spans_at = _aligned(states_at + held)
    end = spans_at + _SPAN_BYTES * held
    columns_at = []
    for at in layout.in_rows:
        columns_at.append(_aligned(end))
        end = columns_at[-1] + held * layout.leaves[at].row_bytes
    return StorePlan(
        layout,
        samples,
        held,
        arena_bytes,
        layout_bytes,
        states_at,
        spans_at,
        tuple(columns_at),
        _aligned(end),
    )


def _aligned(offset: int) -> int:
    return -(-offset // _PAGE) * _PAGE


def write_header(region: SharedRegion, plan: StorePlan) -> None:
    """Make an empty store of a region of zeros."""
    sizes = (plan.layout_bytes, plan.samples, plan.held, plan.arena_bytes)
    region.write(_HEADER.size, pickle.dumps(plan.layout))
    region.write(0, _HEADER.pack(_MAGIC, _VERSION, *sizes, boot_id(), 0))


def read_header(region: SharedRegion) -> tuple[StorePlan, bytes] | None:
    """Return a region's plan and the boot in which it was made; None if it is not a store of this version."""
    if region.size < _HEADER.size:
        return None
    magic, version, layout_bytes, samples, held, arena_bytes, boot, used = _HEADER.unpack(
        region.read(0, _HEADER.size)
    )
    if magic != _MAGIC or version != _VERSION or used > arena_bytes:
        return None
    try:
        layout = loads(region.read(_HEADER.size, layout_bytes))
    except Exception:  # truncated, or of classes that no longer exist: pickle raises anything
        return None
    if not isinstance(layout, SampleLayout) or held > samples:
        return None
    planned = plan(layout, samples, held, arena_bytes, layout_bytes)
    return (planned, boot) if region.size >= planned.arena_at + used else None


@cache
def boot_id() -> bytes:
    """Identify this boot of the machine: files written in an earlier one may be incomplete."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()[:40].ljust(40, b"\0")
    except OSError:  # not Linux: never the same
        return os.urandom(20).hex().encode()


class Store:
    """A region with a header, ready for use. Pickled, it is a handle to its region."""

    def __init__(self, region: SharedRegion, planned: StorePlan) -> None:
        self.region = region
        self.plan = planned
        self.layout = layout = planned.layout
        columns = [
            region.tensor(at, dtype, (planned.held, *leaf.shape))
            for at, leaf in zip(planned.columns_at, _leaves_in_rows(layout), strict=True)
            if (dtype := leaf.dtype) is not None
        ]
        self.rows = Rows(_leaves_in_rows(layout), columns)
        self.states: NDArray[np.uint8] = region.tensor(
            planned.states_at, torch.uint8, (planned.held,)
        ).numpy()
        self._spans: NDArray[np.int64] = region.tensor(
            planned.spans_at, torch.int64, (planned.held, 2)
        ).numpy()
        self._used: NDArray[np.int64] = region.tensor(_USED_AT, torch.int64, (1,)).numpy()
        self._writers = [
            self._writer(leaf, column, at)
            for leaf, column, at in zip(self.rows.leaves, columns, planned.columns_at, strict=True)
        ]
        self._writing = RecordLock(region.fd, _WRITING)
        self._build = layout.sample
        self._is_raw = [layout.leaves[at] for at in layout.in_blobs] == [RAW]

    def _writer(self, leaf: Leaf, column: torch.Tensor, at: int) -> Callable[[int, Any], Any]:
        size = leaf.row_bytes
        if size < LARGE_BYTES:
            return writer(leaf, column)
        region = self.region
        return large_writer(leaf, column, lambda row, data: region.write(at + row * size, data))

    def __reduce__(self) -> Any:
        return Store, (self.region, self.plan)

    @property
    def taken_bytes(self) -> int:
        """Memory or disk space in use when all samples are filled."""
        return self.plan.taken_bytes + int(self._used[0])

    @property
    def end(self) -> int:
        """The end of what is used of the region."""
        return self.plan.arena_at + int(self._used[0])

    def is_complete(self) -> bool:
        """Whether every sample of the dataset is here."""
        states = self.states
        return self.plan.held == self.plan.samples and bool(((states == ROW) | (states == ODD)).all())

    def get(self, index: int) -> Any:
        """Read a sample whose state is ROW or ODD."""
        if self.states[index] == ODD:
            return self._blob(index)
        values = self.rows.values(index)
        if self.layout.in_blobs:
            values = self._merged(values, self._blob(index))
        return self._build(values)

    def texts(self, index: int) -> Sequence[Any]:
        """Return the values of a ROW sample that do not lie in rows."""
        return self._blob(index)  # type: ignore[no-any-return] # written by `put`

    def put(self, index: int, sample: Any) -> int:
        """Copy a sample in, unless it is there already, and return its state.

        It stays MISSING if another process was stopped while it held the write lock.
        """
        if self.states[index] != MISSING:
            return int(self.states[index])
        values = self.layout.values(sample)
        if values is None:
            blob: bytes | memoryview = dumps(sample)
            state = ODD
        else:
            blob, state = self._dumped(values), ROW
        try:
            with self._writing:
                if self.states[index] == MISSING:  # no other process was faster
                    self._write(index, values, blob, state)
        except LockTimeoutError:
            pass
        return int(self.states[index])

    def _write(self, index: int, values: list[Any] | None, blob: bytes | memoryview, state: int) -> None:
        if blob and not self._write_blob(index, blob):
            state = NO_ROOM
        elif values is not None:
            for at, write in zip(self.layout.in_rows, self._writers, strict=True):
                write(index, values[at])
        fence()
        self.states[index] = state

    def _dumped(self, values: list[Any]) -> bytes | memoryview:
        apart = self.layout.in_blobs
        if self._is_raw:
            return memoryview(values[apart[0]].data.numpy())
        return dumps([values[at] for at in apart]) if apart else b""

    def _write_blob(self, index: int, blob: bytes | memoryview) -> bool:
        begin = int(self._used[0])
        end = begin + len(blob)
        if end > self.plan.arena_bytes:
            return False
        self.region.reserve(self.plan.arena_at + begin, len(blob))
        self.region.write(self.plan.arena_at + begin, blob)
        self._spans[index] = begin, len(blob)
        self._used[0] = end
        return True

    def _blob(self, index: int) -> Any:
        begin, size = self._spans[index].tolist()
        if self._is_raw:
            return [Raw(self.region.tensor(self.plan.arena_at + begin, torch.uint8, (size,)))]
        return loads(self.region.read(self.plan.arena_at + begin, size))

    def _merged(self, in_rows: list[Any], in_blobs: Sequence[Any]) -> list[Any]:
        values: list[Any] = [None] * len(self.layout.leaves)
        for at, value in zip(self.layout.in_rows, in_rows, strict=True):
            values[at] = value
        for at, value in zip(self.layout.in_blobs, in_blobs, strict=True):
            values[at] = value
        return values


def _leaves_in_rows(layout: SampleLayout) -> list[Any]:
    return [layout.leaves[at] for at in layout.in_rows]
