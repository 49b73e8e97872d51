"""How a process that waits for a message learns that one is there.

Who sleeps on a pipe is woken on the core of who writes to it, because the kernel takes the writer to be done:
worker and training process then take turns on one core while another one idles. Who sleeps on a semaphore is
woken where it slept.

Where messages come within microseconds even that takes longer than the message: falling asleep and waking up
cost both sides several of them, and an idle core of a virtual machine many. So a waiter that has a core to
itself looks a moment longer, for as long as looking has been worth it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

_LOOK_S = 100e-6
"""What waking up may take: looking for longer costs more than it saves."""
_ALONE_S = 50e-6
"""A pause that takes longer was taken by somebody else: then this core is wanted for other work."""
_SKIPPED_AMONG_OTHERS = 64
"""Waits without a look after that."""
_MOST_SKIPPED = 1024
"""Waits without a look after many in vain: what is looked for comes at its own pace, then."""


class Patience:
    """Decides how a process waits: by looking again and again, for a moment, or not at all.

    A look that was in vain lets the next waits go to sleep at once: one, then two, four and so on; many where
    others have work for this core.
    """

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, pause: Callable[[], None] | None = None
    ) -> None:
        self._clock = clock
        self._pause = pause or os.sched_yield
        self._to_skip = 0
        self._skip_next = 1

    def sees(self, is_there: Callable[[], bool]) -> bool:
        """Whether `is_there` becomes true while it is worth looking."""
        if self._to_skip:
            self._to_skip -= 1
            return False
        now_s = self._clock()
        end_s = now_s + _LOOK_S
        while now_s < end_s:
            if is_there():
                self._skip_next = 1
                return True
            before_s = now_s
            self._pause()  # whoever has work goes first
            now_s = self._clock()
            if now_s - before_s > _ALONE_S:
                self._skip_next = max(self._skip_next, _SKIPPED_AMONG_OTHERS)
                break
        self._to_skip = self._skip_next
        self._skip_next = min(2 * self._skip_next, _MOST_SKIPPED)
        return False


class Bell:
    """Rung once for every message, by any process; heard by one that waits.

    `patience`, where there is some, is the waiter's own: it is not handed to other processes.
    """

    def __init__(self, context: Any) -> None:
        self._rung = context.Semaphore(0)
        self.patience: Patience | None = None

    def __getstate__(self) -> Any:
        return self._rung

    def __setstate__(self, rung: Any) -> None:
        self._rung, self.patience = rung, None

    def ring(self) -> None:
        """Tell that a message is there, or about to be."""
        self._rung.release()

    def heard(self, timeout_s: float | None) -> bool:
        """Whether the bell was rung, or is within `timeout_s`: once more than it was heard."""
        acquire = self._rung.acquire
        if acquire(False):
            return True
        if timeout_s == 0:
            return False
        if self.patience is not None and _is_main_thread() and self.patience.sees(lambda: acquire(False)):
            return True
        return bool(acquire(True, timeout_s))


def _is_main_thread() -> bool:
    """Looking keeps the interpreter's lock: no other thread is to take it from the one that trains."""
    return threading.current_thread() is threading.main_thread()
