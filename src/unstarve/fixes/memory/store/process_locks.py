"""Locks between processes that share a descriptor, and how long to wait for a process that may have stopped.

The system's record locks work between processes, not between the threads of one, so a lock of this process
comes with each. They are released when their process dies. Where they do not exist (Windows), processes share
no region either.
"""

from __future__ import annotations

import os
import threading
import time

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment] # where the module is missing

STALLED_S = 60.0
"""A process that adds no sample for this long counts as stopped; at worst its samples are read twice."""
ANSWER_S = 5.0
"""A process that owns a shared region's name but offers no region for this long is not one of our ranks."""
POLL_S = 0.01
_LOCK_POLL_S = 0.0005  # about as long as writing a large sample takes

_threads = threading.Lock()
_fence = threading.Lock()


def _renew() -> None:
    """In a forked child: a thread that held a lock exists only in the parent."""
    global _threads, _fence
    _threads = threading.Lock()
    _fence = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


class StallTimer:
    """Expires when another process shows no progress for `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._progress: object = None
        self._since_s = time.monotonic()

    def is_expired(self, progress: object = None) -> bool:
        """Check again. `progress` is anything that changes while the other process works."""
        now = time.monotonic()
        if progress != self._progress:
            self._progress = progress
            self._since_s = now
        return now - self._since_s >= self._seconds


class LockTimeoutError(Exception):
    """Another process holds a lock far longer than a write takes: it was stopped."""


class RecordLock:
    """A lock among all threads and processes that have the file, for use with `with`.

    `at` is the byte that is locked. Raises LockTimeoutError after `STALLED_S`; from then on at once, until
    the lock is free again.
    """

    __slots__ = ("_at", "_fd", "_timed_out")

    def __init__(self, fd: int, at: int) -> None:
        self._fd = fd
        self._at = at
        self._timed_out = False

    def __enter__(self) -> None:
        _threads.acquire()
        try:
            self._take()
        except BaseException:  # also Ctrl-C: or all threads would wait forever
            _threads.release()
            raise

    def __exit__(self, *_: object) -> None:
        unlock(self._fd, self._at)
        _threads.release()

    def _take(self) -> None:
        """Wait for other processes; the threads of this process are kept out by `_threads`."""
        timer = None if self._timed_out else StallTimer(STALLED_S)
        while not try_lock(self._fd, self._at):
            if timer is None or timer.is_expired():
                self._timed_out = True
                raise LockTimeoutError
            time.sleep(_LOCK_POLL_S)
        self._timed_out = False


def try_lock(fd: int, at: int) -> bool:
    """Take the lock for this process unless another process has it."""
    if fcntl is not None:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
        except (BlockingIOError, PermissionError):
            return False
    return True


def unlock(fd: int, at: int) -> None:
    """Release the lock."""
    if fcntl is not None:
        fcntl.lockf(fd, fcntl.LOCK_UN, 1, at)


def fence() -> None:
    """Make earlier writes visible to other processors before any later write."""
    with _fence:
        pass
    with _fence:
        pass
