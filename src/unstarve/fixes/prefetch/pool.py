"""Threads that run fetches, and are there only while there is something to fetch."""

from __future__ import annotations

import threading
import time
from queue import Empty, SimpleQueue

from unstarve.fixes.prefetch.tasks import IDLE_S, WITH_THREADS, Task


class Pool:
    """At most `most` threads; each ends when idle, when told to `leave`, or with the process."""

    def __init__(self, most: int) -> None:
        self._most = most
        # Its put may be called from a finalizer that interrupts any line; None asks a thread to leave.
        self._queue: SimpleQueue[Task | None] = SimpleQueue()
        self._lock = threading.Lock()  # no thread leaves while a task is being put in
        self._threads: set[threading.Thread] = set()
        self._waiting = 0
        """Tasks that no thread has taken yet."""
        WITH_THREADS.add(self)

    def submit(self, task: Task) -> None:
        """Run the task as soon as there is a thread for it."""
        with self._lock:
            self._queue.put(task)
            self._waiting += 1
            if len(self._threads) < self._most:
                thread = threading.Thread(target=self._work, name="unstarve-prefetch", daemon=True)
                self._threads.add(thread)
                try:
                    thread.start()
                except RuntimeError:  # no more threads to be had here: fewer will do
                    self._threads.discard(thread)
                    if not self._threads:
                        raise

    def leave(self) -> None:
        """End the threads that have nothing to do; takes no lock, so that a finalizer may call it."""
        for _ in range(len(self._threads)):
            self._queue.put(None)

    def join(self, deadline: float) -> None:
        """Wait for the threads until the monotonic clock shows `deadline`."""
        for thread in tuple(self._threads):
            thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self) -> None:
        while True:
            try:
                task = self._queue.get(timeout=IDLE_S)
            except Empty:
                task = None
            if task is not None:
                with self._lock:
                    self._waiting -= 1
                if not task.dropped:
                    task.run()
                del task  # a sample nobody wants any more is not kept alive by an idle thread
                continue
            with self._lock:
                # Somebody else's tasks may lie behind the request to leave, and count on all threads.
                if not self._waiting:
                    self._threads.discard(threading.current_thread())
                    return
