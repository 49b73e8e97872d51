"""The training process's side of the hand-off: a message → a batch on the slot's memory.

A slot goes back to its worker when the last tensor, view or array on its memory is gone. Children that are
forked meanwhile see the same memory: slots in use at that moment are never written to again.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import weakref
from typing import Any

from unstarve.fixes.loader.ring.outbox import HANDLE, PLACE, WHOLE
from unstarve.fixes.loader.ring.packing import Arrays, loaded
from unstarve.fixes.loader.ring.pinned import Fence
from unstarve.fixes.loader.ring.repeating import Plans
from unstarve.fixes.loader.ring.slots import FREE, MADE, NOTE, RETIRED, flag_of
from unstarve.fixes.memory.unnamed_memory import Mapping


class ReceivedSlot:
    """A slot of one worker, as the training process sees it."""

    __slots__ = ("__weakref__", "_fence", "_flag", "_holder", "_pid", "mapping", "retired")

    def __init__(self, mapping: Mapping, fence: Fence | None) -> None:
        self.mapping = mapping
        self._fence = fence
        self.retired = False
        """A forked child may read the memory at any later time."""
        self._flag = flag_of(mapping)
        self._holder: weakref.finalize[..., Any] | None = None
        self._pid = os.getpid()
        _received.add(self)

    @property
    def is_held(self) -> bool:
        """Whether a batch uses the memory."""
        return self._holder is not None and self._holder.alive

    def hold(self) -> Any:
        """Return a buffer for the present batch to refer to; the slot goes back when the buffer is gone."""
        held = self.mapping.view()
        self._holder = weakref.finalize(held, self._let_go)
        self._holder.atexit = False  # the worker is gone by then
        return held

    def release(self) -> None:
        """Give the slot back to its worker: nobody refers to it."""
        if os.getpid() == self._pid:  # in a forked child nothing is ours to give back
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


class Inbox:
    """The slots of all workers of one iterator. With a `fence` they are pinned."""

    def __init__(self, fence: Fence | None = None) -> None:
        self._fence = fence
        self._plans = Plans()
        self._links: list[socket.socket] = []
        self._slots: list[dict[int, ReceivedSlot]] = []

    def connect(self, link: socket.socket) -> int:
        """Take the next worker's end of a socket; return the worker's number."""
        self._links.append(link)
        self._slots.append({})
        return len(self._links) - 1

    @property
    def pins(self) -> bool:
        """Whether slots are pinned memory."""
        return self._fence is not None

    @property
    def slot_count(self) -> int:
        """How many slots are known."""
        return sum(map(len, self._slots))

    def close(self) -> None:
        """Let the slots go. Batches that were handed out stay good."""
        for link, slots in zip(self._links, self._slots, strict=True):
            link.close()
            slots.clear()

    def open(self, message: bytes) -> Any:
        """Return what a worker's `Outbox.message` stands for."""
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
        if not descriptors:  # the kernel drops them where the process may open no more
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
