"""A multiprocessing queue that writes small messages at once instead of leaving them to its feeder thread.

The thread still sends what is large, what torch has to pickle, and everything while the pipe is full or in
use; until it has caught up all later messages go through it too, so the order is kept. `put` never blocks.

A reader that sleeps on a pipe is woken on the writer's core, because the kernel assumes the writer is done:
worker and training process then take turns on one core while another idles. A reader that sleeps on a
semaphore is woken on the core where it slept. So the queue signals each message through a semaphore (`Bell`).

When messages arrive within microseconds of each other, even falling asleep and waking up takes longer than
the message, most of all on an idle core of a virtual machine. So a reader with a core to itself polls for a
moment before it sleeps, as long as polling pays off (`SpinWait`).
"""

from __future__ import annotations

import functools
import os
import pickle
import select
import struct
import threading
import time
from collections.abc import Callable
from multiprocessing import queues
from queue import Empty, Full
from typing import TYPE_CHECKING, Any

from unstarve.fixes.loader.ring.batch_pickle import pickled
from unstarve.fixes.loader.ring.slot_messages import TAG, Inbox, Outbox
from unstarve.marks import PacksItself

if TYPE_CHECKING:
    Queue = queues.Queue[Any]
else:
    Queue = queues.Queue

_SIZE = struct.Struct("!i")
"""In front of every message of a multiprocessing connection; -1: the size follows, in eight bytes."""
_MOST_BYTES = select.PIPE_BUF - _SIZE.size
"""A message up to this size is written atomically: whole or not at all, even if the writer is killed."""


class RingQueue(Queue, PacksItself):
    """The queue type for both directions between the training process and a worker."""

    inbox: Inbox | None = None
    """Opens messages from workers; set in the training process."""
    outbox: Outbox | None = None
    """Puts batches into slots; set in a worker."""

    # multiprocessing's own attributes, which its stubs do not type.
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
        self._recv_bytes = functools.partial(_receive, self._reader)
        # Not methods of this queue: the feeder thread holds them and must not keep the queue alive.
        self._send_bytes = functools.partial(_send, self._send_bytes, self.bell, backlog)
        self._on_queue_feeder_error = functools.partial(_lose, self._on_queue_feeder_error, backlog)

    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        """Send `obj`, now or through the feeder thread."""
        if self._closed:
            raise ValueError(f"Queue {self!r} is closed")
        message = self._message(obj)
        if message is not None and self.when_packed is not None:
            self.when_packed(obj)
        if message is None or not self._put_at_once(message, block, timeout):
            self._backlog.add(1)
            super().put(obj if message is None else _Late(message), block, timeout)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Return the next item; raises queue.Empty if none arrives in time."""
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
        """Wait for a message. The pipe decides whether one is there; the bell may ring slightly earlier."""
        if not self.bell.heard(_left_s(deadline) if block else 0.0):
            return bool(self._arrived.poll(0))  # its writer may have been killed before ringing
        if self._arrived.poll(0):
            return True
        left_s = _left_s(deadline) if block else 0.0
        if self._arrived.poll(None if left_s is None else left_s * 1000):
            return True
        self.bell.ring()  # for the next `get`: the message is still on its way
        return False

    def _message(self, obj: Any) -> bytes | None:
        if self.outbox is not None:
            return self.outbox.message(obj)
        try:
            return pickled(obj)
        except Exception:  # the feeder thread reports the error, as it does in torch
            return None

    def _put_at_once(self, message: bytes, block: bool, timeout: float | None) -> bool:
        if self._backlog.count or len(message) > _MOST_BYTES:
            return False
        if not self._sem.acquire(block, timeout):
            raise Full
        if self._wlock.acquire(False):
            try:
                pipe = self._writer.fileno()
                if self._room.poll(0) == [(pipe, select.POLLOUT)]:
                    os.write(pipe, _SIZE.pack(len(message)) + message)
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
    """A packed message that the feeder thread sends."""

    def __init__(self, message: bytes) -> None:
        self.message = message


class _Backlog:
    """Number of items that the feeder thread has yet to send."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def add(self, change: int) -> None:
        with self._lock:
            self.count += change


def _left_s(deadline: float | None) -> float | None:
    return None if deadline is None else max(deadline - time.monotonic(), 0.0)


def _receive(reader: Any) -> bytes:
    """Do what the connection's own `recv_bytes` does; a small message is one read, as it was one write."""
    (size,) = _SIZE.unpack(os.read(reader.fileno(), _SIZE.size))
    if 0 <= size <= _MOST_BYTES:
        return os.read(reader.fileno(), size)
    if size == -1:
        (size,) = struct.unpack("!Q", reader._recv(8).getvalue())
    message: bytes = reader._recv(size).getvalue()
    return message


def _send(write: Callable[[Any], None], bell: Bell, backlog: _Backlog, message: Any) -> None:
    bell.ring()  # before writing: a message larger than the pipe is written only while it is being read
    try:
        write(message)
    finally:
        backlog.add(-1)


def _lose(tell: Callable[[Exception, Any], None], backlog: _Backlog, error: Exception, obj: Any) -> None:
    backlog.add(-1)
    tell(error, obj)


_SPIN_S = 100e-6
"""About the time a wake-up takes: polling for longer costs more than it saves."""
_YIELD_S = 50e-6
"""If `sched_yield` takes longer than this, another process ran: this core is wanted for other work."""
_SKIP_WHEN_SHARED = 64
"""Waits without polling after that."""
_MAX_SKIP = 1024
"""Most waits without polling, after many polls in vain."""


class SpinWait:
    """Polls for a moment before a process sleeps, or not at all.

    After each poll in vain the next waits skip polling: one, then two, four and so on; many at once if
    another process wants this core.
    """

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, pause: Callable[[], None] | None = None
    ) -> None:
        self._clock = clock
        self._pause = pause or os.sched_yield
        self._to_skip = 0
        self._skip_next = 1

    def succeeds(self, is_there: Callable[[], bool]) -> bool:
        """Poll `is_there` while that is worthwhile; return whether it became true."""
        if self._to_skip:
            self._to_skip -= 1
            return False
        now_s = self._clock()
        end_s = now_s + _SPIN_S
        while now_s < end_s:
            if is_there():
                self._skip_next = 1
                return True
            before_s = now_s
            self._pause()  # let any other runnable process go first
            now_s = self._clock()
            if now_s - before_s > _YIELD_S:
                self._skip_next = max(self._skip_next, _SKIP_WHEN_SHARED)
                break
        self._to_skip = self._skip_next
        self._skip_next = min(2 * self._skip_next, _MAX_SKIP)
        return False


class Bell:
    """A semaphore: rung once per message by any process, heard by the one that waits.

    `spin` belongs to the waiting process and is not passed on to others.
    """

    def __init__(self, context: Any) -> None:
        self._rung = context.Semaphore(0)
        self.spin: SpinWait | None = None

    def __getstate__(self) -> Any:
        return self._rung

    def __setstate__(self, rung: Any) -> None:
        self._rung, self.spin = rung, None

    def ring(self) -> None:
        """Announce that a message is there or about to be."""
        self._rung.release()

    def heard(self, timeout_s: float | None) -> bool:
        """Consume one ring, waiting up to `timeout_s` (None: forever); return whether there was one."""
        acquire = self._rung.acquire
        if acquire(False):
            return True
        if timeout_s == 0:
            return False
        if self.spin is not None and _is_main_thread() and self.spin.succeeds(lambda: acquire(False)):
            return True
        return bool(acquire(True, timeout_s))


def _is_main_thread() -> bool:
    """Polling holds the GIL, so only the thread that trains may poll."""
    return threading.current_thread() is threading.main_thread()
