"""Slots of shared memory: who owns one, when it is created, replaced and freed.

The worker owns a slot (`Slot`) until it sends it. Then the training process owns it (`ReceivedSlot`) until
the last tensor, view or array on its memory is gone. The first word of the memory names the owner. A worker
does not reuse a slot while anything in its own process still refers to it, either: a dataset may keep what it
returned.

A child forked from the training process sees the same memory: slots in use at that moment are retired, never
written again.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import weakref
from typing import Any

from unstarve.fixes.loader.ring.gpu_fence import Fence
from unstarve.fixes.memory.unnamed_memory import Mapping, create, whole_pages

HEADER_BYTES = 64
FREE, BUSY, RETIRED = range(3)
"""The owner: the worker; the training process; nobody, because a forked child may still read the slot."""

NOTE = struct.Struct("<cIQ")
"""Sent by the worker over its own socket: slot created or dropped, its number, its size in bytes."""
MADE, DROPPED = b"+", b"-"

_SPARE_SLOTS = 4
_MORE_SLOTS, _MORE_BYTES = 64, 64 << 20
"""Limits for a user who keeps many batches; beyond them batches are sent torch's own way."""


def flag_of(mapping: Mapping) -> ctypes.c_uint32:
    """Return the word that names the slot's owner. The caller keeps the mapping alive."""
    return ctypes.c_uint32.from_address(mapping.address)


class Slot:
    """Shared memory that this worker fills again and again."""

    def __init__(self, number: int, mapping: Mapping) -> None:
        self.number = number
        self.mapping = mapping
        self.flag = flag_of(mapping)
        self.used_bytes = HEADER_BYTES
        self.tensors: Any = None  # not typed: slot_collate imports this module
        """The `SlotTensors` of `slot_collate`, valid until something else is written here."""
        self._hold: weakref.ref[Any] | None = None

    @property
    def is_free(self) -> bool:
        """Whether it may be written: nothing in either process refers to its memory."""
        return self.flag.value == FREE and (self._hold is None or self._hold() is None)

    def hold(self) -> Any:
        """Return a buffer over the memory; the slot is in use while anything refers to the buffer."""
        held = None if self._hold is None else self._hold()
        if held is None:
            held = self.mapping.view()
            self._hold = weakref.ref(held)
        return held

    def reserve(self, size_bytes: int) -> int | None:
        """Reserve `size_bytes` more and return their offset; None if they do not fit."""
        offset = self.used_bytes
        end = offset + size_bytes
        if end > self.mapping.size_bytes:
            return None
        self.used_bytes = aligned(end)
        self.tensors = None
        return offset


def aligned(size_bytes: int) -> int:
    """Return the size rounded up to a cache line."""
    return -(-size_bytes // 64) * 64


class Slots:
    """All slots of one worker. `link` is the socket over which the training process is told about them."""

    def __init__(self, link: socket.socket, in_flight: int) -> None:
        self._link = link
        self._usual = in_flight + _SPARE_SLOTS
        self._slots: list[Slot] = []
        self._made = 0

    def take(self, size_bytes: int) -> Slot | None:
        """Return a free slot of at least `size_bytes`; None at the limits above or without memory."""
        self._slots = [slot for slot in self._slots if slot.flag.value != RETIRED]
        too_small: Slot | None = None
        for slot in self._slots:
            if slot.is_free:
                if slot.mapping.size_bytes >= size_bytes:
                    slot.used_bytes = HEADER_BYTES
                    return slot
                too_small = slot
        try:
            if too_small is not None:
                self._drop(too_small)
            return self._make(size_bytes)
        except OSError:
            return None  # no memory, no descriptors or no peer: torch's own way reports what is wrong

    def _make(self, size_bytes: int) -> Slot | None:
        capacity = whole_pages(size_bytes + size_bytes // 8)  # batch sizes vary a little
        count, total = len(self._slots), sum(slot.mapping.size_bytes for slot in self._slots)
        if count >= self._usual and (count >= _MORE_SLOTS or total + capacity > _MORE_BYTES):
            return None
        mapping, descriptor = create(capacity)
        try:
            note = NOTE.pack(MADE, self._made, capacity)
            socket.send_fds(self._link, [note], [descriptor], socket.MSG_DONTWAIT)
        finally:
            os.close(descriptor)
        slot = Slot(self._made, mapping)
        self._made += 1
        self._slots.append(slot)
        return slot

    def _drop(self, slot: Slot) -> None:
        self._slots.remove(slot)
        self._link.send(NOTE.pack(DROPPED, slot.number, 0), socket.MSG_DONTWAIT)


class ReceivedSlot:
    """A worker's slot, mapped in the training process."""

    __slots__ = ("__weakref__", "_fence", "_flag", "_holder", "_pid", "mapping", "retired")

    def __init__(self, mapping: Mapping, fence: Fence | None) -> None:
        self.mapping = mapping
        self._fence = fence
        self.retired = False
        """Whether a forked child may still read the memory, at any later time."""
        self._flag = flag_of(mapping)
        self._holder: weakref.finalize[..., Any] | None = None
        self._pid = os.getpid()
        _received.add(self)

    @property
    def is_held(self) -> bool:
        """Whether a batch uses the memory."""
        return self._holder is not None and self._holder.alive

    def hold(self) -> Any:
        """Return a buffer for the current batch to refer to; the slot is freed when the buffer is gone."""
        held = self.mapping.view()
        self._holder = weakref.finalize(held, self._let_go)
        self._holder.atexit = False  # the worker is gone by then
        return held

    def release(self) -> None:
        """Give the slot back to its worker, now that nothing refers to it."""
        if os.getpid() == self._pid:  # a forked child has nothing to give back
            self._flag.value = RETIRED if self.retired else FREE

    def _let_go(self) -> None:
        if self._fence is None:
            self.release()
        else:
            self._fence.when_done(self.release)


_received: weakref.WeakSet[ReceivedSlot] = weakref.WeakSet()


def _retire_held() -> None:
    for slot in list(_received):
        slot.retired |= slot.is_held


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_retire_held)
