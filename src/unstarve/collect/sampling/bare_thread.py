"""A thread for sampling. Standard library only: it may be started while torch is being imported."""

from __future__ import annotations

import _thread
import time
from collections.abc import Callable
from pathlib import Path

_END_S = 1.0


class BareThread:
    """A bare thread: not listed by ``threading``, not traced by a user's tracer, not joined at exit."""

    def __init__(self, run: Callable[[_thread.LockType], None]) -> None:
        self._run = run
        self._stop = _thread.allocate_lock()
        self._stop.acquire()
        self._native_id = 0
        self._done = _thread.allocate_lock()
        self._done.acquire()
        _thread.start_new_thread(self._bootstrap, ())

    def _bootstrap(self) -> None:
        try:
            self._native_id = _thread.get_native_id()
            self._run(self._stop)
        finally:
            self._done.release()

    def end(self) -> None:
        """End the thread, and wait until the kernel no longer lists it."""
        self._stop.release()
        deadline = time.monotonic() + _END_S
        if self._done.acquire(timeout=_END_S):
            task = Path(f"/proc/self/task/{self._native_id}")
            while task.exists() and time.monotonic() < deadline:
                time.sleep(0)
