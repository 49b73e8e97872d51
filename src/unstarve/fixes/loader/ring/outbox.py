"""The worker's side of the hand-off: a finished batch → a slot of shared memory → a message of a few bytes.

Batches that are built in memory from `allocate` lie in the slot already; everything else is copied there
once. What does not fit goes torch's own way: `message` returns None.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import socket
import struct
import threading
from collections.abc import Sequence

import torch

from unstarve.fixes.loader.ring.forms import Filled
from unstarve.fixes.loader.ring.packing import COPIED_BYTES, Packed, has_code, pack
from unstarve.fixes.loader.ring.repeating import Repeats
from unstarve.fixes.loader.ring.slots import BUSY, HEADER_BYTES, Slot, Slots, aligned

HANDLE = struct.Struct("<cqIIQII")
"""A message that names a slot: tag, task, worker, slot, offset and rows of the table, bytes of its pickle."""
WHOLE = -1
"""For a task: the pickle is of the whole item. Otherwise it is of the batch, and the item is both of them."""
TAG = b"u"  # no pickle starts with it
PLACE = struct.Struct("<QQ")
"""A row of the table: offset and size of a region."""

MOST_INLINE_BYTES = 2048
"""A pickle up to this size that refers to no memory is sent as it is."""


class Outbox:
    """What a worker sends its batches with."""

    def __init__(self, link: socket.socket, worker: int, in_flight: int) -> None:
        self._slots = Slots(link, in_flight)
        self._worker = worker
        self._open: Slot | None = None
        self._expected_bytes = 0
        self._repeats = Repeats()
        self._lock = threading.Lock()  # a dataset may make its batches in threads

    def allocate(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return memory to build a batch in: in the slot that will be sent next, where there is room."""
        size_bytes = math.prod(shape) * dtype.itemsize
        if size_bytes > COPIED_BYTES and has_code(dtype):
            with self._lock:
                if self._open is None and self._expected_bytes:
                    self._open = self._slots.take(self._expected_bytes)
                offset = None if self._open is None else self._open.reserve(size_bytes)
                if self._open is not None and offset is not None:
                    count = size_bytes // dtype.itemsize
                    flat = torch.frombuffer(self._open.hold(), dtype=dtype, count=count, offset=offset)
                    return flat.resize_(shape)
        return torch.empty(*shape, dtype=dtype, device="cpu")

    def message(self, item: object) -> bytes | None:
        """Return what to send for `item`: a small pickle, or the name of the slot it was put in."""
        with self._lock:
            built_in, self._open = self._open, None
        if type(item) is tuple and len(item) == 2 and type(item[1]) is Filled:
            return self._filled(*item)
        try:
            task, packed = self._packed(item)
        except Exception:  # Unfit, or not to be pickled: torch's own way sends it or says why it cannot
            return None
        if not packed.regions and len(packed.stream) <= MOST_INLINE_BYTES:
            return packed.stream
        offsets, table_offset, end = _layout(packed, built_in)
        self._expected_bytes = max(end, self._expected_bytes - self._expected_bytes // 16)
        slot = built_in
        if slot is None or end > slot.mapping.size_bytes:
            offsets, table_offset, end = _layout(packed, None)
            slot = self._slots.take(end)
            if slot is None:
                return None
        _write(packed, slot, offsets, table_offset)
        slot.flag.value = BUSY
        rows, stream_bytes = len(packed.regions), len(packed.stream)
        return HANDLE.pack(TAG, task, self._worker, slot.number, table_offset, rows, stream_bytes)

    def _filled(self, task: int, batch: Filled) -> bytes:
        form, rows = batch.form, len(batch.form.columns)
        stream_bytes = len(form.tail) - rows * PLACE.size
        return HANDLE.pack(TAG, task, self._worker, batch.slot.number, form.table_offset, rows, stream_bytes)

    def take(self, size_bytes: int) -> Slot | None:
        """Return a slot for a batch that is not to be built in memory from `allocate`."""
        with self._lock:
            self._open = None
            return self._slots.take(size_bytes)

    def _packed(self, item: object) -> tuple[int, Packed]:
        if type(item) is tuple and len(item) == 2 and type(item[0]) is int and item[0] >= 0:
            repeated = self._repeats.pack(item[1])
            if repeated is not None:
                return item[0], repeated
        return WHOLE, pack(item)


def _layout(packed: Packed, built_in: Slot | None) -> tuple[list[int], int, int]:
    """Where in the slot each region goes, where the table, and where it all ends.

    A region that lies in `built_in` stays there; the others go behind what is used of it.
    """
    start = used = end = 0
    if built_in is not None:
        start, used = built_in.mapping.address, built_in.used_bytes
    end = max(used, HEADER_BYTES)
    offsets = []
    for region in packed.regions:
        inside = region.address - start
        if inside >= HEADER_BYTES and inside + region.size_bytes <= used:
            offsets.append(inside)
        else:
            offsets.append(end)
            end = aligned(end + region.size_bytes)
    return offsets, end, end + PLACE.size * len(packed.regions) + len(packed.stream)


def _write(packed: Packed, slot: Slot, offsets: Sequence[int], table_offset: int) -> None:
    slot.cast = None
    address = slot.mapping.address
    for region, offset in zip(packed.regions, offsets, strict=True):
        if region.address != address + offset and region.size_bytes:
            ctypes.memmove(address + offset, region.address, region.size_bytes)
    places = itertools.chain.from_iterable(
        (offset, region.size_bytes) for region, offset in zip(packed.regions, offsets, strict=True)
    )
    table = struct.pack(f"<{2 * len(offsets)}Q", *places)
    ctypes.memmove(address + table_offset, table + packed.stream, len(table) + len(packed.stream))
