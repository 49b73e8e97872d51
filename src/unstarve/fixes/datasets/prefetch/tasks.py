"""One fetch: run by a thread or an event loop, waited for by whoever asked for the sample."""

from __future__ import annotations

import atexit
import inspect
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol

IDLE_S = 1.0
"""How long a thread waits for its next fetch before it ends; a new one starts within 0.1 ms."""

_EXIT_WAIT_S = 2.0
"""How long a Python that exits waits for fetches under way; then it goes without them."""


class Task:
    """Fetches `unit` by `fetch(unit)`. Whoever runs it calls `run` or `finish`, whoever asked `result`."""

    __slots__ = ("_done", "_error", "_value", "cpu_s", "dropped", "fetch", "unit")

    def __init__(self, fetch: Callable[[Any], Any], unit: Any) -> None:
        self.fetch = fetch
        self.unit = unit
        self.cpu_s = 0.0
        self.dropped = False
        """Nobody will ask for the result: what has not started need not start."""
        self._value: Any = None
        self._error: BaseException | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def run(self) -> None:
        """Fetch in this thread."""
        began = time.thread_time()
        try:
            value, error = self.fetch(self.unit), None
        except BaseException as raised:  # whatever it is, it is raised where the sample is asked for
            value, error = None, raised
        self.cpu_s = time.thread_time() - began
        self.finish(value, error)

    def finish(self, value: Any, error: BaseException | None) -> None:
        """Deliver what was fetched, or what was raised instead."""
        if not self.dropped:
            self._value, self._error = value, error
        self._done.release()

    def wait(self) -> None:
        """Wait until the fetch has ended."""
        with self._done:
            pass

    def result(self) -> Any:
        """Wait for the fetch; return its value or raise its error, with the traceback of the fetch."""
        with self._done:
            value, error = self._value, self._error
            self._value = self._error = None
        if error is None:
            return value
        try:
            raise error
        finally:
            del error  # its traceback holds this frame


class HasThreads(Protocol):
    """Whatever has threads in the background."""

    def leave(self) -> None:
        """End the threads that have nothing to do; takes no lock, so that a finalizer may call it."""

    def join(self, deadline: float) -> None:
        """Wait for the threads until the monotonic clock shows `deadline`."""


class Runner(HasThreads, Protocol):
    """What runs tasks in the background."""

    def submit(self, task: Task) -> None:
        """Run the task as soon as its turn comes."""


WITH_THREADS: weakref.WeakSet[HasThreads] = weakref.WeakSet()
"""All of this process."""


@atexit.register
def _end_all() -> None:
    """Let fetches end before the interpreter does: a thread inside native code must not outlive it."""
    deadline = time.monotonic() + _EXIT_WAIT_S
    left = tuple(WITH_THREADS)
    for one in left:
        one.leave()
    for one in left:
        one.join(deadline)


def is_awaitable(value: Any) -> bool:
    """Whether a fetch returned something to await instead of a sample."""
    return inspect.isawaitable(value)
