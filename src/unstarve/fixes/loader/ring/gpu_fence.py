"""Slots as pinned memory: batches are copied to a GPU from where the worker wrote them.

A copy with ``non_blocking=True`` may still run after its source tensor is gone. torch reuses its own pinned
memory only when the copies out of it are done. The fence ensures the same for slots: after a slot is released
it records an event behind all work queued on the GPUs so far, and frees the slot when the event has passed.
It does so inside ``next()``, in the thread that trains: never while that thread captures a graph, and never
in a finalizer. It calls the driver directly, because torch's next check would pick up an error of the CUDA
runtime.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

from unstarve.cuda_driver import CudaDriverError, beside_graph_captures, call_driver, cuda_driver
from unstarve.fixes.memory.unnamed_memory import Mapping, unmap

_PORTABLE = 1
_NO_TIMING = 2
_NOT_READY = 600

Action = Callable[[], None]


class Fence:
    """Calls back once the GPUs have finished all work queued before `when_done` was called."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._waiting: deque[Action] = deque()
        self._marked: deque[tuple[list[tuple[int, Any]], list[Action]]] = deque()
        self._gone: deque[tuple[int, int]] = deque()
        self._contexts: dict[int, Any] = {}
        self._spare_events: dict[int, list[Any]] = {}

    def map(self, descriptor: int, size_bytes: int) -> tuple[Mapping, bool]:
        """Map shared memory and pin it; return the mapping and whether pinning worked."""
        mapping = Mapping(descriptor, size_bytes, self._unpin_later)
        try:
            with self._inside(torch.cuda.current_device()), beside_graph_captures(self._driver):
                address, size = ctypes.c_void_p(mapping.address), ctypes.c_size_t(size_bytes)
                self._call("cuMemHostRegister_v2", address, size, _PORTABLE)
        except CudaDriverError:
            return mapping, False
        return mapping, True

    def when_done(self, action: Action) -> None:
        """Have a later `settle` call `action`. Does not call the driver."""
        self._waiting.append(action)

    def settle(self) -> None:
        """Run the actions whose GPU work is done, and mark those added since."""
        if not (self._waiting or self._marked or self._gone) or os.getpid() != self._pid:
            return
        if torch.cuda.is_current_stream_capturing() or not self._lock.acquire(blocking=False):
            return
        try:
            self._call_back()
            if self._waiting:
                # Taken out before the mark: later GPU work may read slots released from here on.
                actions = [self._waiting.popleft() for _ in range(len(self._waiting))]
                self._marked.append((self._marks(), actions))
            while self._gone:
                self._unpin(*self._gone.popleft())
        finally:
            self._lock.release()

    def _call_back(self) -> None:
        while self._marked and all(self._has_passed(event) for _, event in self._marked[0][0]):
            marks, actions = self._marked.popleft()
            for device, event in marks:
                self._spare_events[device].append(event)
            for action in actions:
                action()

    def _unpin_later(self, address: int, size_bytes: int) -> None:
        if os.getpid() == self._pid:
            self._gone.append((address, size_bytes))
        else:
            unmap(address, size_bytes)

    def _unpin(self, address: int, size_bytes: int) -> None:
        # The driver refuses memory that was never pinned, which is fine.
        with contextlib.suppress(CudaDriverError), self._inside(torch.cuda.current_device()):
            self._call("cuMemHostUnregister", ctypes.c_void_p(address))
        unmap(address, size_bytes)

    def _marks(self) -> list[tuple[int, Any]]:
        """Record one event on every GPU that this process uses, behind all of its streams."""
        try:
            used = [device for device in range(torch.cuda.device_count()) if self._is_in_use(device)]
            return [(device, self._mark(device)) for device in used]
        except CudaDriverError:  # no events: wait for everything instead
            torch.cuda.synchronize()
            return []

    def _is_in_use(self, device: int) -> bool:
        flags, active = ctypes.c_uint(), ctypes.c_int()
        self._call("cuDevicePrimaryCtxGetState", device, ctypes.byref(flags), ctypes.byref(active))
        return bool(active.value)

    def _mark(self, device: int) -> Any:
        spare = self._spare_events.setdefault(device, [])
        event = ctypes.c_void_p()
        with self._inside(device) as context:
            if spare:
                event = spare.pop()
            else:
                self._call("cuEventCreate", ctypes.byref(event), _NO_TIMING)
            self._call("cuCtxRecordEvent", context, event)
        return event

    def _has_passed(self, event: Any) -> bool:
        return bool(self._driver.cuEventQuery(event) != _NOT_READY)

    @contextlib.contextmanager
    def _inside(self, device: int) -> Iterator[Any]:
        """Make the context that torch uses on `device` current."""
        context = self._contexts.get(device)
        if context is None:
            context = ctypes.c_void_p()
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self._contexts[device] = context
        self._call("cuCtxPushCurrent_v2", context)
        try:
            yield context
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def _call(self, name: str, *args: Any) -> None:
        call_driver(self._driver, name, *args)


def fence() -> Fence | None:
    """Return this process's fence; None without CUDA or with a driver before 12.5, which lacks the event."""
    return _fence(os.getpid()) if torch.version.cuda is not None and torch.cuda.is_available() else None


@functools.cache
def _fence(pid: int) -> Fence | None:
    driver = cuda_driver()
    return Fence(driver) if hasattr(driver, "cuCtxRecordEvent") else None
