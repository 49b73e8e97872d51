"""Threads that run fetches, and are there only while there is something to fetch."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from queue import Empty, SimpleQueue

from unstarve.fixes.datasets.prefetch.tasks import IDLE_S, WITH_THREADS, Task


class Pool:
    """At most `most` threads; each ends when idle, when told to `leave`, or with the process."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._tasks: deque[Task] = deque()
        """What no thread has taken yet. Nothing counts them: after a Ctrl-C between two lines the count
        would be wrong for ever, and threads that wait for it never end."""
        # Its put may be called from a finalizer that interrupts any line; what it holds only wakes threads.
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._lock = threading.Lock()  # no thread leaves while a task is being put in
        self._threads: set[threading.Thread] = set()
        WITH_THREADS.add(self)

    def submit(self, task: Task) -> None:
        """Run the task as soon as there is a thread for it."""
        with self._lock:
            self._tasks.append(task)
            self._wake.put(None)
            if len(self._threads) < self._most:
                thread = threading.Thread(target=self._work, name="unstarve-prefetch", daemon=True)
                try:
                    self._threads.add(thread)
                    thread.start()
                except BaseException as error:
                    self._threads.discard(thread)
                    # No more threads to be had here: fewer will do.
                    if not isinstance(error, RuntimeError) or not self._threads:
                        raise

    def leave(self) -> None:
        """End the threads that have nothing to do; takes no lock, so that a finalizer may call it."""
        for _ in range(len(self._threads)):
            self._wake.put(None)

    def join(self, deadline: float) -> None:
        """Wait for the threads until the monotonic clock shows `deadline`."""
        for thread in tuple(self._threads):
            thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self) -> None:
        while True:
            with contextlib.suppress(Empty):
                self._wake.get(timeout=IDLE_S)
            try:
                task = self._tasks.popleft()
            except IndexError:
                with self._lock:
                    if not self._tasks:
                        self._threads.discard(threading.current_thread())
                        return
                continue
            if not task.dropped:
                task.run()
            del task  # a sample nobody wants any more is not kept alive by an idle thread
