"""The hand-off: a batch → a slot of shared memory → a message of a few bytes → a batch on the slot's memory.

`Outbox` is the worker's side. A batch built in memory from `allocate` is in the slot already; anything else
is copied there once. What does not fit is sent torch's own way: `message` returns None. `Inbox` is the
training process's side.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import math
import os
import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any

import torch

from unstarve.fixes.loader.ring.batch_pickle import (
    COPIED_BYTES,
    Arrays,
    BuildPlans,
    PackedBatch,
    StreamCache,
    has_code,
    loaded,
    pack,
)
from unstarve.fixes.loader.ring.gpu_fence import Fence
from unstarve.fixes.loader.ring.slot_collate import FilledSlot
from unstarve.fixes.loader.ring.slots import (
    BUSY,
    HEADER_BYTES,
    MADE,
    NOTE,
    ReceivedSlot,
    Slot,
    Slots,
    aligned,
)
from unstarve.fixes.memory.unnamed_memory import Mapping

HANDLE = struct.Struct("<cqIIQII")
"""A message that names a slot: tag, task, worker, slot, offset and rows of the table, bytes of the pickle."""
WHOLE = -1
"""As the task: the pickle holds the whole item. Otherwise it holds the batch; the item is (task, batch)."""
TAG = b"u"  # no pickle starts with it
PLACE = struct.Struct("<QQ")
"""A row of the table: offset and size of a region, in bytes."""

MOST_INLINE_BYTES = 2048
"""A pickle up to this size that refers to no array is sent in the message itself."""


class Outbox:
    """Puts a worker's batches into slots."""

    def __init__(self, link: socket.socket, worker: int, in_flight: int) -> None:
        self._slots = Slots(link, in_flight)
        self._worker = worker
        self._open: Slot | None = None
        self._expected_bytes = 0
        self._repeats = StreamCache()
        self._lock = threading.Lock()  # a dataset may build its batches in threads

    def allocate(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return an empty tensor to build a batch in: in the next slot to be sent if it fits there."""
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
        """Return the message for `item`: a small pickle, or the handle of the slot that now holds it.

        None: `item` must be sent torch's own way.
        """
        with self._lock:
            built_in, self._open = self._open, None
        if type(item) is tuple and len(item) == 2 and type(item[1]) is FilledSlot:
            return self._filled(*item)
        try:
            task, packed = self._packed(item)
        except Exception:  # NotPackable, or pickling failed: torch's own way sends it or raises
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

    def _filled(self, task: int, batch: FilledSlot) -> bytes:
        layout, rows = batch.layout, len(batch.layout.columns)
        stream_bytes = len(layout.tail) - rows * PLACE.size
        return HANDLE.pack(
            TAG, task, self._worker, batch.slot.number, layout.table_offset, rows, stream_bytes
        )

    def take(self, size_bytes: int) -> Slot | None:
        """Return a slot of at least `size_bytes` for a batch that is not built in memory from `allocate`."""
        with self._lock:
            self._open = None
            return self._slots.take(size_bytes)

    def _packed(self, item: object) -> tuple[int, PackedBatch]:
        if type(item) is tuple and len(item) == 2 and type(item[0]) is int and item[0] >= 0:
            repeated = self._repeats.pack(item[1])
            if repeated is not None:
                return item[0], repeated
        return WHOLE, pack(item)


def _layout(packed: PackedBatch, built_in: Slot | None) -> tuple[list[int], int, int]:
    """Return the offsets of the regions, of the table, and of the end.

    A region inside `built_in` stays where it is; the others go behind its used part.
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


def _write(packed: PackedBatch, slot: Slot, offsets: Sequence[int], table_offset: int) -> None:
    slot.tensors = None
    address = slot.mapping.address
    for region, offset in zip(packed.regions, offsets, strict=True):
        if region.address != address + offset and region.size_bytes:
            ctypes.memmove(address + offset, region.address, region.size_bytes)
    places = itertools.chain.from_iterable(
        (offset, region.size_bytes) for region, offset in zip(packed.regions, offsets, strict=True)
    )
    table = struct.pack(f"<{2 * len(offsets)}Q", *places)
    ctypes.memmove(address + table_offset, table + packed.stream, len(table) + len(packed.stream))


class Inbox:
    """The slots of all workers of one iterator. With a `fence` they are pinned."""

    def __init__(self, fence: Fence | None = None) -> None:
        self._fence = fence
        self._plans = BuildPlans()
        self._links: list[socket.socket] = []
        self._slots: list[dict[int, ReceivedSlot]] = []

    def connect(self, link: socket.socket) -> int:
        """Add a worker by its socket and return the worker's number."""
        self._links.append(link)
        self._slots.append({})
        return len(self._links) - 1

    @property
    def pins(self) -> bool:
        """Whether slots are in pinned memory."""
        return self._fence is not None

    @property
    def slot_count(self) -> int:
        """Number of slots currently mapped."""
        return sum(map(len, self._slots))

    def close(self) -> None:
        """Drop all slots. Batches already handed out stay valid."""
        for link, slots in zip(self._links, self._slots, strict=True):
            link.close()
            slots.clear()

    def open(self, message: bytes) -> Any:
        """Return the item for which a worker's `Outbox.message` made this message."""
        _, task, worker, number, table_offset, rows, stream_bytes = HANDLE.unpack(message)
        slot = self._slot(worker, number)
        address = slot.mapping.address
        table_bytes = rows * PLACE.size
        table = ctypes.string_at(address + table_offset, table_bytes + stream_bytes)
        places = list(PLACE.iter_unpack(table[:table_bytes]))
        held: list[Any] = []

        def hold() -> Any:
            if not held:
                held.append(slot.hold())
            return held[0]

        try:
            stream, arrays = table[table_bytes:], Arrays(address, places, hold)
            return loaded(stream, arrays) if task == WHOLE else (task, self._plans.build(stream, arrays))
        finally:
            if not held:
                slot.release()

    def _slot(self, worker: int, number: int) -> ReceivedSlot:
        slots = self._slots[worker]
        while number not in slots:
            self._learn(worker)
        return slots[number]

    def _learn(self, worker: int) -> None:
        note, descriptors, _, _ = socket.recv_fds(self._links[worker], NOTE.size, 1, socket.MSG_DONTWAIT)
        what, number, size_bytes = NOTE.unpack(note)
        slots = self._slots[worker]
        if what != MADE:
            slots.pop(number, None)
            return
        for retired in [n for n, slot in slots.items() if slot.retired and not slot.is_held]:
            del slots[retired]
        if not descriptors:  # the kernel drops them when the process is at its open-file limit
            raise OSError(errno.EMFILE, "too many open files to receive a batch")
        try:
            slots[number] = self._receive(descriptors[0], size_bytes)
        finally:
            os.close(descriptors[0])

    def _receive(self, descriptor: int, size_bytes: int) -> ReceivedSlot:
        if self._fence is None:
            return ReceivedSlot(Mapping(descriptor, size_bytes), None)
        mapping, pinned = self._fence.map(descriptor, size_bytes)
        return ReceivedSlot(mapping, self._fence if pinned else None)
