"""Locks on the bytes of a descriptor: between processes that share it, and gone with a process that dies.

The system's record locks hold between processes but not between threads of one, so a lock of this process
goes with them. Where there are none (Windows), processes share no region either.
"""

from __future__ import annotations

import os
import threading
import time

from unstarve.fixes.memory.store import patience
from unstarve.fixes.memory.store.patience import Patience

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment] # where the module is missing

_POLL_S = 0.0005  # as long as it takes to write a large sample

_threads = threading.Lock()
_fence = threading.Lock()


def _renew() -> None:
    """In a forked child: a thread that held a lock exists only in the parent."""
    global _threads, _fence
    _threads = threading.Lock()
    _fence = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


class HeldTooLongError(Exception):
    """Another process keeps a lock that it should have for a moment only: it was stopped."""


class Lock:
    """The lock `at` among all threads and processes that have the file, for use with `with`.

    Raises HeldTooLongError where it cannot be had; from then on at once, until it can be had again.
    """

    __slots__ = ("_at", "_fd", "_in_vain")

    def __init__(self, fd: int, at: int) -> None:
        self._fd = fd
        self._at = at
        self._in_vain = False

    def __enter__(self) -> None:
        _threads.acquire()
        try:
            self._take()
        except BaseException:  # also Ctrl-C: or all threads would wait for ever
            _threads.release()
            raise

    def __exit__(self, *_: object) -> None:
        unlock(self._fd, self._at)
        _threads.release()

    def _take(self) -> None:
        """Wait for other processes; threads of one process do not exclude each other here."""
        waiting = None if self._in_vain else Patience(patience.STALLED_S)
        while not try_lock(self._fd, self._at):
            if waiting is None or waiting.is_over():
                self._in_vain = True
                raise HeldTooLongError
            time.sleep(_POLL_S)
        self._in_vain = False


def try_lock(fd: int, at: int) -> bool:
    """Take the lock for this process unless another process has it."""
    if fcntl is not None:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
        except (BlockingIOError, PermissionError):
            return False
    return True


def unlock(fd: int, at: int) -> None:
    """Give the lock back."""
    if fcntl is not None:
        fcntl.lockf(fd, fcntl.LOCK_UN, 1, at)


def fence() -> None:
    """Let other processors see what was written before, before anything that is written after."""
    with _fence:
        pass
    with _fence:
        pass
