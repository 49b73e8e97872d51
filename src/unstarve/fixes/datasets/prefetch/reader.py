"""One thread that reads an iterable ahead of whoever consumes it."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from queue import SimpleQueue
from typing import Any

from unstarve.fixes.datasets.prefetch.judge import Fetch, timed
from unstarve.fixes.datasets.prefetch.tasks import WITH_THREADS

ITEMS_TO_TIME = 16


class Channel:
    """Between the reading thread and the consumer; its queues may be used from a finalizer."""

    def __init__(self, source: Iterable[Any], queue_size: int) -> None:
        self.items: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self.room: SimpleQueue[None] = SimpleQueue()
        self.timed: list[Fetch] = []
        """What the first items took to make."""
        self._closed = False
        for _ in range(queue_size):
            self.room.put(None)
        self._thread = threading.Thread(
            target=self._read, args=(source,), name="unstarve-prefetch-reader", daemon=True
        )
        self._thread.start()
        WITH_THREADS.add(self)

    def leave(self) -> None:
        """End the thread after the item it is reading; takes no lock, so that a finalizer may call it."""
        self._closed = True
        self.room.put(None)

    def join(self, deadline: float) -> None:
        """Wait for the thread until the monotonic clock shows `deadline`."""
        self._thread.join(max(0.0, deadline - time.monotonic()))

    def _read(self, source: Iterable[Any]) -> None:
        try:
            iterator = iter(source)
            while True:
                self.room.get()
                if self._closed:
                    return
                self.items.put((self._next(iterator), None))
        except BaseException as error:  # StopIteration too: raised where the item is asked for
            self.items.put((None, error))

    def _next(self, iterator: Iterator[Any]) -> Any:
        if len(self.timed) == ITEMS_TO_TIME:
            return next(iterator)
        value, took = timed(iterator.__next__)
        self.timed.append(took)
        return value


class ReadAhead(Iterator[Any]):
    """Gives what `source` gives, in the same order; a thread makes up to `queue_size` items in advance."""

    def __init__(self, source: Iterable[Any], queue_size: int) -> None:
        self._process = os.getpid()
        self._channel = Channel(source, queue_size)
        self._ended = False
        weakref.finalize(self, self._channel.leave).atexit = False

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        if os.getpid() != self._process:
            raise RuntimeError(
                "this iteration is read by a thread of the parent process: begin a new one here"
            )
        item, error = self._channel.items.get()
        if error is None:
            self._channel.room.put(None)
            return item
        self._ended = True
        try:
            raise error
        finally:
            del error  # its traceback holds this frame

    @property
    def timed(self) -> list[Fetch]:
        """What the first items took to make, as far as they have been."""
        return self._channel.timed
