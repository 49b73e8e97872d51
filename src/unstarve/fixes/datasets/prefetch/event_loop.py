"""Fetches that are coroutines: one event loop in a background thread."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from typing import Any

from unstarve.fixes.datasets.prefetch.tasks import IDLE_S, WITH_THREADS, Task, is_awaitable

_LEFT_BEHIND: list[EventLoop] = []
"""Loops that a fork copied. Closing a copy would reach into the parent's epoll set, so they are kept."""


class EventLoop:
    """Awaits at most `most` fetches at a time.

    The loop is kept between iterations, because a client session that a dataset opened belongs to it; its
    thread ends when idle or told to `leave`, and another one takes the loop up again.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._wake = asyncio.Event()
        self._lock = threading.Lock()  # the thread does not leave while a task is being put in
        self._waiting: deque[Task] = deque()
        self._thread: threading.Thread | None = None
        self._serving = False
        self._leaving = False
        self._closing = False
        WITH_THREADS.add(self)

    def submit(self, task: Task) -> None:
        """Await the task as soon as its turn comes."""
        with self._lock:
            self._waiting.append(task)
            self._leaving = False
            if self._serving:
                self._loop.call_soon_threadsafe(self._wake.set)
            else:
                self._serving = True
                self._thread = threading.Thread(
                    target=self._work, args=(self._thread,), name="unstarve-prefetch-loop", daemon=True
                )
                self._thread.start()

    def leave(self) -> None:
        """End the thread once nothing is wanted of it; takes no lock, so that a finalizer may call it."""
        self._leaving = True
        if self._serving:
            self._loop.call_soon_threadsafe(self._wake.set)

    def join(self, deadline: float) -> None:
        """Wait for the thread until the monotonic clock shows `deadline`."""
        if self._thread is not None:
            self._thread.join(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Leave for good: the dataset is gone."""
        if os.getpid() != self._process:
            _LEFT_BEHIND.append(self)
            return
        self._closing = True
        self.leave()
        if self._serving or self._thread is threading.current_thread():
            return  # the thread closes the loop when it ends
        if self._thread is not None:
            self._thread.join()  # it has left its loop and has a line or two to go
        self._loop.close()

    def _work(self, predecessor: threading.Thread | None) -> None:
        if predecessor is not None:
            predecessor.join()
        self._loop.run_until_complete(self._serve())
        if self._closing:
            self._loop.close()

    async def _serve(self) -> None:
        running: dict[asyncio.Task[None], Task] = {}

        def ended(runner: asyncio.Task[None]) -> None:
            del running[runner]
            self._wake.set()

        while True:
            self._wake.clear()
            while self._waiting and len(running) < self._most:
                task = self._waiting.popleft()
                if not task.dropped:
                    runner = self._loop.create_task(_run(task))
                    running[runner] = task
                    runner.add_done_callback(ended)
            try:
                await asyncio.wait_for(self._wake.wait(), IDLE_S)
            except TimeoutError:
                self._leaving = not running
            if not self._leaving:
                continue
            for runner, task in running.items():
                if task.dropped:
                    runner.cancel()
            with self._lock:
                if not running and not self._waiting:
                    self._serving = False
                    return


async def _run(task: Task) -> None:
    value: Any = None
    error: BaseException | None = None
    try:
        value = task.fetch(task.unit)
        if is_awaitable(value):
            value = await value
    except BaseException as raised:  # whatever it is, it is raised where the sample is asked for
        value, error = None, raised
    task.finish(value, error)
