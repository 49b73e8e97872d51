"""The worker's side of the shared memory: which slot is free, when one is made, when one is replaced.

A slot is the worker's until it is sent, then the training process's until nobody there refers to it any
more; the first word of its memory says whose. It is never reused while anything in this process still
refers to it, either: a dataset may keep what it has returned.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import weakref
from typing import Any

from unstarve.fixes.memory.unnamed_memory import Mapping, create, whole_pages

HEADER_BYTES = 64
FREE, BUSY, RETIRED = range(3)
"""Whose a slot is: the worker's; the training process's; nobody's, as a forked child may still read it."""

NOTE = struct.Struct("<cIQ")
"""From worker to training process, on a socket of their own: what happened, to which slot, its size."""
MADE, DROPPED = b"+", b"-"

_SPARE_SLOTS = 4
_MORE_SLOTS, _MORE_BYTES = 64, 64 << 20
"""A user who keeps many batches gets more slots while they are small; then batches go torch's own way."""


def flag_of(mapping: Mapping) -> ctypes.c_uint32:
    """Return the word of a slot that says whose it is. The caller keeps the mapping alive."""
    return ctypes.c_uint32.from_address(mapping.address)


class Slot:
    """Shared memory that this worker fills again and again."""

    def __init__(self, number: int, mapping: Mapping) -> None:
        self.number = number
        self.mapping = mapping
        self.flag = flag_of(mapping)
        self.used_bytes = HEADER_BYTES
        self.cast: Any = None
        """What `forms` keeps here, for as long as nothing else is written."""
        self._hold: weakref.ref[Any] | None = None

    @property
    def is_free(self) -> bool:
        """Whether it may be written to: nobody here or there refers to its memory."""
        return self.flag.value == FREE and (self._hold is None or self._hold() is None)

    def hold(self) -> Any:
        """Return a buffer over the memory; the slot is in use for as long as somebody refers to it."""
        held = None if self._hold is None else self._hold()
        if held is None:
            held = self.mapping.view()
            self._hold = weakref.ref(held)
        return held

    def reserve(self, size_bytes: int) -> int | None:
        """Return the offset of so many more bytes; None where they do not fit."""
        offset = self.used_bytes
        end = offset + size_bytes
        if end > self.mapping.size_bytes:
            return None
        self.used_bytes = aligned(end)
        self.cast = None
        return offset


def aligned(size_bytes: int) -> int:
    """Return the size rounded up to a cache line."""
    return -(-size_bytes // 64) * 64


class Slots:
    """All slots of one worker. `link` is the socket on which the training process learns of them."""

    def __init__(self, link: socket.socket, in_flight: int) -> None:
        self._link = link
        self._usual = in_flight + _SPARE_SLOTS
        self._slots: list[Slot] = []
        self._made = 0

    def take(self, size_bytes: int) -> Slot | None:
        """Return a free slot of at least so many bytes; None where no more memory may or can be had."""
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
            return None  # no memory, no descriptors, or nobody there: torch's own way says what is wrong

    def _make(self, size_bytes: int) -> Slot | None:
        capacity = whole_pages(size_bytes + size_bytes // 8)  # batches differ a little
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
