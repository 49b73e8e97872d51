"""A Ctrl-C that comes while workers are started is raised when they are."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_put_off: list[Callable[..., Any]] = []
"""The handlers that come back, the user's own first."""


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Put a Ctrl-C off until the end of this block, or of the function it decorates.

    While a process forks, Python drops whatever a signal handler raises: the training would go on, and its
    workers be gone. And what has begun, like the change from one crew to another, is not left half done.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    came: list[int] = []
    _put_off.append(handler)
    signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        _put_off.pop()
        for number in came[:1]:
            signal.raise_signal(number)


def _heed_in_child() -> None:
    """Workers are interrupted at once, as torch's are."""
    if _put_off:
        signal.signal(signal.SIGINT, _put_off[0])
        _put_off.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_heed_in_child)
