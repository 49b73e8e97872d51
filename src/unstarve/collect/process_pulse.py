"""Once a second, a row about this process: what it is doing and how much memory it uses.

    /proc/self/statm   "41207 9312 4120 …": pages in total, resident, shared (files and shared memory)
    /proc/self/io      "…\nread_bytes: 0\n…": from storage
    /dev/shm           from `statvfs`: torch's workers put their batches there, and it is often small

Any of them may be missing: its numbers are then −1.
"""

from __future__ import annotations

import os

from unstarve.record import format as f

_EVERY_NS = 1_000_000_000
_UNKNOWN = -1
_STATM = b"/proc/self/statm"
_IO = b"/proc/self/io"
"""As bytes: `file_opens` counts only names that are strings, so these do not count for the dataset."""
_SHM = "/dev/shm"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessPulse:
    """Says when the next row is due, and makes it."""

    def __init__(self, *, training: bool) -> None:
        self._training = training
        self._next_ns = 0

    def due(self, now_ns: int) -> bool:
        """Whether a second has passed since this was last true."""
        if now_ns < self._next_ns:
            return False
        self._next_ns = now_ns + _EVERY_NS
        return True

    def row(self, now_ns: int, place: str | None, cpu_ns: int, queued_ns: int) -> f.PulseRow:
        """The row to write; `place` is what the watched thread is doing, None when it waits."""
        doing = 1 + f.PULSE_DOING.index(place or "wait")
        # All processes of a machine see the same /dev/shm: only the training process reports it.
        shm_bytes, shm_total_bytes = shared_memory() if self._training else (_UNKNOWN, _UNKNOWN)
        rss_bytes, shared_bytes = resident()
        return f.PulseRow(
            doing=doing,
            flags=0,
            at_ns=now_ns,
            cpu_ns=cpu_ns,
            queued_ns=queued_ns,
            storage_bytes=storage_bytes(),
            rss_bytes=rss_bytes,
            shared_bytes=shared_bytes,
            shm_bytes=shm_bytes,
            shm_total_bytes=shm_total_bytes,
        )


def resident(statm: bytes = _STATM) -> tuple[int, int]:
    """Resident bytes of this process, and how many of them are shared."""
    try:
        pages = [int(word) for word in content(statm).split()[1:3]]
    except (OSError, ValueError):
        return _UNKNOWN, _UNKNOWN
    return (pages[0] * _PAGE_BYTES, pages[1] * _PAGE_BYTES) if len(pages) == 2 else (_UNKNOWN, _UNKNOWN)


def storage_bytes(io: bytes = _IO) -> int:
    """Bytes that this process has read from storage so far."""
    try:
        words = content(io).split()
        return int(words[words.index(b"read_bytes:") + 1])
    except (OSError, ValueError, IndexError):
        return _UNKNOWN


def shared_memory(shm: str = _SHM) -> tuple[int, int]:
    """Bytes in use in /dev/shm, by all processes, and its size."""
    try:
        stat = os.statvfs(shm)
    except OSError:
        return _UNKNOWN, _UNKNOWN
    return (stat.f_blocks - stat.f_bfree) * stat.f_frsize, stat.f_blocks * stat.f_frsize


def content(path: bytes, most: int = 1024) -> bytes:
    """The first bytes of a file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, most)
    finally:
        os.close(fd)
