"""Locks on the bytes of a descriptor: between processes that share it, and gone with a process that dies.

The system's record locks hold between processes but not between threads of one, so a lock of this process
goes with them. Where there are none (Windows), processes share no region either.
"""

from __future__ import annotations

import os
import threading

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment] # where the module is missing

_threads = threading.Lock()
_fence = threading.Lock()


def _renew() -> None:
    """In a forked child: a thread that held a lock exists only in the parent."""
    global _threads, _fence
    _threads = threading.Lock()
    _fence = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


class Lock:
    """The lock `at` among all threads and processes that have the file, for use with `with`."""

    __slots__ = ("_at", "_fd")

    def __init__(self, fd: int, at: int) -> None:
        self._fd = fd
        self._at = at

    def __enter__(self) -> None:
        _threads.acquire()
        try:
            lock(self._fd, self._at)
        except BaseException:  # also Ctrl-C: or all threads would wait for ever
            _threads.release()
            raise

    def __exit__(self, *_: object) -> None:
        unlock(self._fd, self._at)
        _threads.release()


def lock(fd: int, at: int) -> None:
    """Wait until this process has the lock; threads of one process do not exclude each other."""
    if fcntl is not None:
        fcntl.lockf(fd, fcntl.LOCK_EX, 1, at)


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
