"""A multiprocessing queue that writes small messages itself, at once, where its thread would do it later.

The thread remains for what is large, for what torch has to pickle, and for whenever the pipe is full or in
use; then everything behind goes through it too, so that the order is kept. Putting never blocks.
"""

from __future__ import annotations

import functools
import pickle
import select
import threading
import time
from collections.abc import Callable
from multiprocessing import queues
from queue import Empty, Full
from typing import TYPE_CHECKING, Any

from unstarve.fixes.loader.ring.bell import Bell
from unstarve.fixes.loader.ring.inbox import Inbox
from unstarve.fixes.loader.ring.outbox import TAG, Outbox
from unstarve.fixes.loader.ring.packing import pickled
from unstarve.marks import PacksItself

if TYPE_CHECKING:
    Queue = queues.Queue[Any]
else:
    Queue = queues.Queue

_HEADER_BYTES = 4  # in front of every message of a multiprocessing connection
_MOST_BYTES = select.PIPE_BUF - _HEADER_BYTES
"""Up to this size a message is written whole or not at all, whatever happens to the writer."""


class RingQueue(Queue, PacksItself):
    """Both ways between the training process and a worker."""

    inbox: Inbox | None = None
    """Where messages of workers are opened; in the training process."""
    outbox: Outbox | None = None
    """What batches are sent with; in a worker."""

    # multiprocessing's own, without types in its stubs.
    _closed: bool
    _on_queue_feeder_error: Any
    _reader: Any
    _recv_bytes: Any
    _rlock: Any
    _sem: Any
    _send_bytes: Any
    _wlock: Any
    _writer: Any

    def __init__(self, *, ctx: Any) -> None:
        self.bell = Bell(ctx)
        super().__init__(ctx=ctx)

    def __getstate__(self) -> Any:
        return self.bell, super().__getstate__()

    def __setstate__(self, state: Any) -> None:
        self.bell, its_own = state
        super().__setstate__(its_own)

    def _reset(self, after_fork: bool = False) -> None:
        super()._reset(after_fork)  # type: ignore[misc]  # not in the stubs
        self._arrived, self._room = select.poll(), select.poll()
        self._arrived.register(self._reader.fileno(), select.POLLIN)
        self._room.register(self._writer.fileno(), select.POLLOUT)
        self._backlog = backlog = _Backlog()
        self._write = self._send_bytes
        # Not methods of this queue: its thread, which gets them, must not keep it alive.
        self._send_bytes = functools.partial(_send, self._write, self.bell, backlog)
        self._on_queue_feeder_error = functools.partial(_lose, self._on_queue_feeder_error, backlog)

    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        """Send `obj`, now or by the queue's thread."""
        if self._closed:
            raise ValueError(f"Queue {self!r} is closed")
        message = self._message(obj)
        if message is not None and self.when_packed is not None:
            self.when_packed(obj)
        if message is None or not self._put_at_once(message, block, timeout):
            self._backlog.add(1)
            super().put(obj if message is None else _Late(message), block, timeout)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Return the next item; raises queue.Empty when there is none in time."""
        if self._closed:
            raise ValueError(f"Queue {self!r} is closed")
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._rlock.acquire(block, timeout):
            raise Empty
        try:
            if not self._is_there(block, deadline):
                raise Empty
            message = self._recv_bytes()
            self._sem.release()
        finally:
            self._rlock.release()
        return self._open(message)

    def _is_there(self, block: bool, deadline: float | None) -> bool:
        """Wait for a message. What is there is what the pipe says; the bell may be a little ahead of it."""
        if not self.bell.heard(_left_s(deadline) if block else 0.0):
            return bool(self._arrived.poll(0))  # from somebody who was killed before ringing
        if self._arrived.poll(0):
            return True
        left_s = _left_s(deadline) if block else 0.0
        if self._arrived.poll(None if left_s is None else left_s * 1000):
            return True
        self.bell.ring()  # for who looks next: the message is still on its way
        return False

    def _message(self, obj: Any) -> bytes | None:
        if self.outbox is not None:
            return self.outbox.message(obj)
        try:
            return pickled(obj)
        except Exception:  # the queue's thread will say what is wrong, as it always does
            return None

    def _put_at_once(self, message: bytes, block: bool, timeout: float | None) -> bool:
        if self._backlog.count or len(message) > _MOST_BYTES:
            return False
        if not self._sem.acquire(block, timeout):
            raise Full
        if self._wlock.acquire(False):
            try:
                if self._room.poll(0) == [(self._writer.fileno(), select.POLLOUT)]:
                    self._write(message)
                    self.bell.ring()
                    return True
            finally:
                self._wlock.release()
        self._sem.release()
        return False

    def _open(self, message: bytes) -> Any:
        if message.startswith(TAG):
            assert self.inbox is not None, "only the training process receives batches"
            return self.inbox.open(message)
        item = pickle.loads(message)
        return self._open(item.message) if type(item) is _Late else item


class _Late:
    """A message that has to wait for the queue's thread."""

    def __init__(self, message: bytes) -> None:
        self.message = message


class _Backlog:
    """How many items the queue's thread has still to send."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def add(self, change: int) -> None:
        with self._lock:
            self.count += change


def _left_s(deadline: float | None) -> float | None:
    return None if deadline is None else max(deadline - time.monotonic(), 0.0)


def _send(write: Callable[[Any], None], bell: Bell, backlog: _Backlog, message: Any) -> None:
    bell.ring()  # before: what does not fit into the pipe is only written while it is read
    try:
        write(message)
    finally:
        backlog.add(-1)


def _lose(tell: Callable[[Exception, Any], None], backlog: _Backlog, error: Exception, obj: Any) -> None:
    backlog.add(-1)
    tell(error, obj)
