"""The training process's side of the hand-over: when a worker's batch arrived, and what it took to unpack.

The workers' result queue is looked at through two of its instance attributes; its class and the other
queues of the program stay as they are.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from typing import Any

from torch.utils.data._utils import pin_memory as stock_pin

from unstarve.collect.recorder import Recorder
from unstarve.record import format as f

_clock = time.perf_counter_ns
_pinning = threading.local()
"""``pending``: what this pin thread has received and not yet pinned; ``depth`` of nested pin calls."""


class Place:
    """Which epoch of which loader a queue serves at the moment: persistent workers keep their queue."""

    __slots__ = ("epoch", "loader")

    def __init__(self, loader: int, epoch: int) -> None:
        self.loader = loader
        self.epoch = epoch


def time_receiving(queue: Any, owner: Recorder, place: Place, *, pinned: bool) -> None:
    """Record every batch that is taken out of `queue`, in whichever thread that happens."""
    # No reference from the queue back to itself: it must go when its iterator goes.
    queue_ref, take, receive = weakref.ref(queue), type(queue).get, queue._recv_bytes
    arrived = [0]

    def timed_receive(*args: Any, **kwargs: Any) -> Any:
        message = receive(*args, **kwargs)
        arrived[0] = _clock()
        return message

    def timed_get(*args: Any, **kwargs: Any) -> Any:
        item = take(queue_ref(), *args, **kwargs)
        if type(item) is tuple and type(item[0]) is int:
            now = _clock()
            row = (place.loader, 0, place.epoch, item[0], arrived[0], now)
            if pinned:
                _pinning.pending = (owner, row)
            else:
                owner.row(f.RECEIVED, now, (*row, now))
        return item

    queue._recv_bytes = timed_receive
    queue.get = timed_get


def wrap_pinning() -> None:
    """Time torch's pin-memory thread."""
    original: Any = stock_pin.pin_memory  # untyped in torch
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def pin_memory(data: Any, device: Any = None) -> Any:
        depth = getattr(_pinning, "depth", 0)
        if depth:
            return original(data, device)  # torch walks nested batches by calling itself
        _pinning.depth = 1
        try:
            return original(data, device)
        finally:
            _pinning.depth = 0
            pending = getattr(_pinning, "pending", None)
            if pending is not None:
                _pinning.pending = None
                now = _clock()
                pending[0].row(f.RECEIVED, now, (*pending[1], now))

    stock_pin.pin_memory = pin_memory
