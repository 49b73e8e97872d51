"""Slots as pinned memory: batches are copied to a GPU from where the worker wrote them.

A copy with ``non_blocking=True`` goes on after its source is gone. torch's own pinned memory is not used
again before the copies out of it are done; here the same is seen to by asking the driver for an event behind
everything that the GPUs were told to do before the slot was let go. All of this happens inside ``next()``, in
the thread that trains: nothing is asked of CUDA while somebody captures a graph, nor from a finalizer.
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

from unstarve.fixes.ring.memory import Mapping, unmap

_PORTABLE = 1
_NO_TIMING = 2
_RELAXED = 2
_NOT_READY = 600


class Fence:
    """Calls back once the GPUs have done all that they were asked to do before `when_done` was called."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._marked: deque[tuple[list[tuple[int, Any]], list[Callable[[], None]]]] = deque()
        self._doomed: deque[tuple[int, int]] = deque()
        self._contexts: dict[int, Any] = {}
        self._spare_events: dict[int, list[Any]] = {}

    def map(self, descriptor: int, size_bytes: int) -> tuple[Mapping, bool]:
        """Map shared memory and pin it; return whether that could be done."""
        mapping = Mapping(descriptor, size_bytes, self._doom)
        with self._beside_captures():
            pinned = not int(_runtime().cudaHostRegister(mapping.address, size_bytes, _PORTABLE))
        return mapping, pinned

    def when_done(self, action: Callable[[], None]) -> None:
        """Call `action` from a later `settle`. Costs nothing here."""
        self._waiting.append(action)

    def settle(self) -> None:
        """Look what the GPUs have done meanwhile. Does nothing during the capture of a graph."""
        if not (self._waiting or self._marked or self._doomed) or os.getpid() != self._pid:
            return
        if torch.cuda.is_current_stream_capturing() or not self._lock.acquire(blocking=False):
            return
        try:
            while self._marked and all(self._has_passed(event) for _, event in self._marked[0][0]):
                marks, actions = self._marked.popleft()
                for device, event in marks:
                    self._spare_events[device].append(event)
                for action in actions:
                    action()
            if self._waiting:
                # Taken out first: what is let go from here on may be in use by later work.
                actions = [self._waiting.popleft() for _ in range(len(self._waiting))]
                self._marked.append((self._marks(), actions))
            while self._doomed:
                address, size_bytes = self._doomed.popleft()
                _runtime().cudaHostUnregister(address)
                unmap(address, size_bytes)
        finally:
            self._lock.release()

    def _doom(self, address: int, size_bytes: int) -> None:
        if os.getpid() == self._pid:
            self._doomed.append((address, size_bytes))
        else:
            unmap(address, size_bytes)

    def _marks(self) -> list[tuple[int, Any]]:
        """One event for every GPU that this process uses, behind all of its streams."""
        try:
            return [(device, self._mark(device)) for device in self._devices_in_use()]
        except RuntimeError:  # the driver would not: wait instead of knowing
            torch.cuda.synchronize()
            return []

    def _devices_in_use(self) -> list[int]:
        found = []
        for device in range(torch.cuda.device_count()):
            flags, active = ctypes.c_uint(), ctypes.c_int()
            self._call("cuDevicePrimaryCtxGetState", device, ctypes.byref(flags), ctypes.byref(active))
            if active.value:
                found.append(device)
        return found

    def _mark(self, device: int) -> Any:
        if device not in self._contexts:
            context = ctypes.c_void_p()
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self._contexts[device], self._spare_events[device] = context, []
        context = self._contexts[device]
        if not self._spare_events[device]:
            event = ctypes.c_void_p()
            self._call("cuCtxPushCurrent_v2", context)
            self._call("cuEventCreate", ctypes.byref(event), _NO_TIMING)
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
            self._spare_events[device].append(event)
        event = self._spare_events[device].pop()
        self._call("cuCtxRecordEvent", context, event)
        return event

    def _has_passed(self, event: Any) -> bool:
        return bool(self._driver.cuEventQuery(event) != _NOT_READY)

    @contextlib.contextmanager
    def _beside_captures(self) -> Iterator[None]:
        """Another thread may capture a graph, which calls from this one would break."""
        mode = ctypes.c_int(_RELAXED)
        self._call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            yield
        finally:
            self._call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    def _call(self, name: str, *args: Any) -> None:
        code = getattr(self._driver, name)(*args)
        if code:
            raise RuntimeError(f"CUDA driver: {name} failed with error {code}")


def _runtime() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]  # untyped in torch


def fence() -> Fence | None:
    """Return this process's fence; None without CUDA and with drivers before 12.5, which lack the event."""
    return _fence() if torch.version.cuda is not None and torch.cuda.is_available() else None


@functools.cache
def _fence() -> Fence | None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        _ = driver.cuCtxRecordEvent
    except (OSError, AttributeError):
        return None
    return Fence(driver)
