"""The training process's side of the hand-off: when a worker's batch arrived, and how long unpacking took.

The workers' result queue is watched through two of its instance attributes; its class and the other queues of
the program stay as they are.
"""

from __future__ import annotations

import struct
import threading
import time
import weakref
from collections.abc import Callable
from multiprocessing import queues
from typing import Any

from unstarve.collect.recorder import Recorder
from unstarve.marks import PacksItself
from unstarve.native import native
from unstarve.record import format as f
from unstarve.record.writer import PythonLedger
from unstarve.stack_levels import uncounted

Row = tuple[int, ...]

_clock = time.perf_counter_ns
_pinning = threading.local()
"""``pending``: the batch that this pin thread has received and not yet pinned; ``depth`` of nested calls."""


class PythonReceiving:
    """The queue of one iterator's workers: when each batch arrived, and when it was unpacked.

    `get` and `receive` replace the queue's own ``get`` and ``_recv_bytes``. Where a pin thread reads the
    queue, `pending` is called with the row as far as it is known. The twin of ``_native.Receiving``.
    """

    def __init__(
        self,
        ledger: PythonLedger,
        kind: int,
        layout: str,
        queue_ref: Callable[[], Any],
        get: Callable[..., Any],
        receive: Callable[[], Any],
        pending: Callable[[Row], object] | None,
    ) -> None:
        self._ledger = ledger
        self._kind = kind
        self._layout = struct.Struct(f"<{layout}")
        self._queue_ref, self._get, self._receive = queue_ref, get, receive
        self._pending = pending
        self._arrived_ns = 0
        self.loader = 0
        self.epoch = 0
        """The epoch that the queue serves at the moment: persistent workers keep their queue."""

    def receive(self) -> Any:
        """The next message."""
        message = self._receive()
        self._arrived_ns = _clock()
        return message

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The next batch."""
        item = self._get(self._queue_ref(), block, timeout)
        if type(item) is tuple and item and type(item[0]) is int:
            now = _clock()
            row = (self.loader, 0, self.epoch, item[0], self._arrived_ns, now)
            if self._pending is None:
                self._ledger.append(self._kind, self._layout.pack(*row, now))
            else:
                self._pending(row)
        return item


_native: Any = native()
Receiving: type[PythonReceiving] = PythonReceiving if _native is None else _native.Receiving


def time_receiving(queue: Any, owner: Recorder, loader: int, *, pinned: bool) -> PythonReceiving | None:
    """Record every batch that is taken out of `queue`, in whichever thread that happens.

    None where the queue is neither multiprocessing's nor unstarve's: any other may be read in another way.
    """
    get, receive = type(queue).get, queue._recv_bytes
    if get is not queues.Queue.get and not isinstance(queue, PacksItself):
        return None

    def keep(row: Row) -> None:
        _pinning.pending = (owner, row)

    # No reference from the queue to itself: it must be freed together with its iterator.
    queue_ref = weakref.ref(queue)
    ledger, layout = owner.writer.ledger, f.letters(f.RECEIVED)
    receiving = Receiving(ledger, f.RECEIVED, layout, queue_ref, get, receive, keep if pinned else None)
    receiving.loader = loader
    queue._recv_bytes, queue.get = receiving.receive, receiving.get
    return receiving


def timed_pinning(original: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Wrap torch's ``pin_memory``: note when a batch that came out of the workers' queue is pinned."""

    @uncounted
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
                pending[0].row(f.RECEIVED, now, f.ReceivedRow._make((*pending[1], now)))

    return pin_memory
