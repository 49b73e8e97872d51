"""Background fetching: one fetch and its result, and the threads and event loops that run fetches."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import inspect
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from unstarve.fixes.datasets.prefetch.thread_judge import FetchTime, timed

IDLE_S = 1.0
"""How long a thread waits for its next fetch before it ends; a new one starts within 0.1 ms."""

_EXIT_WAIT_S = 2.0
"""How long an exiting interpreter waits for running fetches."""


class FetchTask:
    """Fetches `unit` by `fetch(unit)`. The runner calls `run` or `finish`, the consumer `result`."""

    __slots__ = ("_done", "_error", "_value", "cpu_s", "dropped", "fetch", "unit")

    def __init__(self, fetch: Callable[[Any], Any], unit: Any) -> None:
        self.fetch = fetch
        self.unit = unit
        self.cpu_s = 0.0
        self.dropped = False
        """Nobody will ask for the result; a task that has not started need not start."""
        self._value: Any = None
        self._error: BaseException | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def run(self) -> None:
        """Fetch in this thread."""
        began = time.thread_time()
        try:
            value, error = self.fetch(self.unit), None
        except BaseException as raised:  # anything: it is raised when the sample is asked for
            value, error = None, raised
        self.cpu_s = time.thread_time() - began
        self.finish(value, error)

    def finish(self, value: Any, error: BaseException | None) -> None:
        """Deliver the value or the error."""
        if not self.dropped:
            self._value, self._error = value, error
        self._done.release()

    def wait(self) -> None:
        """Wait until the fetch has ended."""
        with self._done:
            pass

    def result(self) -> Any:
        """Wait for the fetch; return its value or raise its error with its traceback."""
        with self._done:
            value, error = self._value, self._error
            self._value = self._error = None
        if error is None:
            return value
        try:
            raise error
        finally:
            del error  # its traceback holds this frame


class ThreadOwner(Protocol):
    """Anything that has background threads."""

    def leave(self) -> None:
        """End idle threads. Takes no lock, so that a finalizer may call it."""

    def join(self, deadline: float) -> None:
        """Wait for the threads until the monotonic clock shows `deadline`."""


class FetchRunner(ThreadOwner, Protocol):
    """Runs tasks in the background."""

    def submit(self, task: FetchTask) -> None:
        """Run the task as soon as its turn comes."""


_THREAD_OWNERS: weakref.WeakSet[ThreadOwner] = weakref.WeakSet()
"""All in this process."""


@atexit.register
def _end_all() -> None:
    """Wait for fetches before the interpreter ends: a thread in native code must not outlive it."""
    deadline = time.monotonic() + _EXIT_WAIT_S
    left = tuple(_THREAD_OWNERS)
    for one in left:
        one.leave()
    for one in left:
        one.join(deadline)


def is_awaitable(value: Any) -> bool:
    """Whether a fetch returned an awaitable instead of a sample."""
    return inspect.isawaitable(value)


class ThreadPool:
    """Up to `most` threads, which exist only while there is something to fetch."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._tasks: deque[FetchTask] = deque()
        """Tasks that no thread has taken yet. They are not counted: after a Ctrl-C between two lines a count
        would stay wrong, and threads waiting for it would never end."""
        # A finalizer that interrupts any line may call its put; its items only wake threads.
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._lock = threading.Lock()  # no thread ends while a task is added
        self._threads: set[threading.Thread] = set()
        _THREAD_OWNERS.add(self)

    def submit(self, task: FetchTask) -> None:
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
                    # The system refuses more threads: use fewer.
                    if not isinstance(error, RuntimeError) or not self._threads:
                        raise

    def leave(self) -> None:
        """End idle threads. Takes no lock, so that a finalizer may call it."""
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
            del task  # an idle thread must not keep a sample alive


_FORKED_LOOPS: list[EventLoop] = []
"""Loops copied by a fork, kept alive: closing a copy would change the parent's epoll set."""


class EventLoop:
    """Awaits up to `most` fetches at a time, in one background thread.

    The loop lives on between iterations, because a client session that a dataset opened is bound to it. Its
    thread ends when idle or told to `leave`; the next task starts another thread for the same loop.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._wake = asyncio.Event()
        self._lock = threading.Lock()  # the thread does not end while a task is added
        self._waiting: deque[FetchTask] = deque()
        self._thread: threading.Thread | None = None
        self._serving = False
        self._leaving = False
        self._closing = False
        _THREAD_OWNERS.add(self)

    def submit(self, task: FetchTask) -> None:
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
        """End the thread when it is idle. Takes no lock, so that a finalizer may call it."""
        self._leaving = True
        if self._serving:
            self._loop.call_soon_threadsafe(self._wake.set)

    def join(self, deadline: float) -> None:
        """Wait for the thread until the monotonic clock shows `deadline`."""
        if self._thread is not None:
            self._thread.join(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """End for good: the dataset is gone."""
        if os.getpid() != self._process:
            _FORKED_LOOPS.append(self)
            return
        self._closing = True
        self.leave()
        if self._serving or self._thread is threading.current_thread():
            return  # the thread closes the loop when it ends
        if self._thread is not None:
            self._thread.join()  # it has left its loop and is about to end
        self._loop.close()

    def _work(self, predecessor: threading.Thread | None) -> None:
        if predecessor is not None:
            predecessor.join()
        self._loop.run_until_complete(self._serve())
        if self._closing:
            self._loop.close()

    async def _serve(self) -> None:
        running: dict[asyncio.Task[None], FetchTask] = {}

        def ended(runner: asyncio.Task[None]) -> None:
            del running[runner]
            self._wake.set()

        while True:
            self._wake.clear()
            while self._waiting and len(running) < self._most:
                task = self._waiting.popleft()
                if not task.dropped:
                    runner = self._loop.create_task(_await_task(task))
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


async def _await_task(task: FetchTask) -> None:
    value: Any = None
    error: BaseException | None = None
    try:
        value = task.fetch(task.unit)
        if is_awaitable(value):
            value = await value
    except BaseException as raised:  # anything: it is raised when the sample is asked for
        value, error = None, raised
    task.finish(value, error)


ITEMS_TO_TIME = 16


class Channel:
    """Connects a reading thread with its consumer; a finalizer may use its queues."""

    def __init__(self, source: Iterable[Any], queue_size: int) -> None:
        self.items: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self.room: SimpleQueue[None] = SimpleQueue()
        self.timed: list[FetchTime] = []
        """How long the first items took."""
        self._closed = False
        for _ in range(queue_size):
            self.room.put(None)
        self._thread = threading.Thread(
            target=self._read, args=(source,), name="unstarve-prefetch-reader", daemon=True
        )
        self._thread.start()
        _THREAD_OWNERS.add(self)

    def leave(self) -> None:
        """End the thread after its current item. Takes no lock, so that a finalizer may call it."""
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
        except BaseException as error:  # StopIteration too: raised when the item is asked for
            self.items.put((None, error))

    def _next(self, iterator: Iterator[Any]) -> Any:
        if len(self.timed) == ITEMS_TO_TIME:
            return next(iterator)
        value, took = timed(iterator.__next__)
        self.timed.append(took)
        return value


class IterableReader(Iterator[Any]):
    """Yields the items of `source` in order; a thread reads up to `queue_size` items ahead."""

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
                "a thread of the parent process reads this iteration: begin a new one in this process"
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
    def timed(self) -> list[FetchTime]:
        """How long the first items took, as far as they were read."""
        return self._channel.timed
