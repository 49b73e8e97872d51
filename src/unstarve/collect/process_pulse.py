"""About once a second and process: what it does and how much memory it has, for who looks on and for later.

    /proc/self/statm   "41207 9312 4120 …": pages in all, resident, of these shared (files and shared memory)
    /proc/self/io      "…\nread_bytes: 0\n…": from storage
    /dev/shm           what `statvfs` says: torch's workers put their batches there, and it is often small

Each of them may be missing: its numbers are then −1.
"""

from __future__ import annotations

import os

from unstarve.record import format as f

_EVERY_NS = 1_000_000_000
_UNKNOWN = -1
_STATM = b"/proc/self/statm"
_IO = b"/proc/self/io"
"""As bytes: files that are named like that do not count as opened by the dataset, see `opens`."""
_SHM = "/dev/shm"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessPulse:
    """Says when the next look is due, and what a process looks like then."""

    def __init__(self, *, training: bool) -> None:
        self._training = training
        self._next_ns = 0

    def due(self, now_ns: int) -> bool:
        """Whether a second has passed since the last time this was so."""
        if now_ns < self._next_ns:
            return False
        self._next_ns = now_ns + _EVERY_NS
        return True

    def row(self, now_ns: int, place: str | None, cpu_ns: int, queued_ns: int) -> f.PulseRow:
        """The row to write; `place` is what the watched thread was found doing, None when it waits."""
        doing = 1 + f.PULSE_DOING.index(place or "wait")
        # All processes of a machine see the same /dev/shm: the one that trains tells.
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
    """Bytes of this process in memory, and how many of these are shared ones."""
    try:
        pages = [int(word) for word in _content(statm).split()[1:3]]
    except (OSError, ValueError):
        return _UNKNOWN, _UNKNOWN
    return (pages[0] * _PAGE_BYTES, pages[1] * _PAGE_BYTES) if len(pages) == 2 else (_UNKNOWN, _UNKNOWN)


def storage_bytes(io: bytes = _IO) -> int:
    """What this process has read from storage so far."""
    try:
        words = _content(io).split()
        return int(words[words.index(b"read_bytes:") + 1])
    except (OSError, ValueError, IndexError):
        return _UNKNOWN


def shared_memory(shm: str = _SHM) -> tuple[int, int]:
    """Bytes in use in /dev/shm, by anybody, and all that may be."""
    try:
        stat = os.statvfs(shm)
    except OSError:
        return _UNKNOWN, _UNKNOWN
    return (stat.f_blocks - stat.f_bfree) * stat.f_frsize, stat.f_blocks * stat.f_frsize


def _content(path: bytes) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 1024)
    finally:
        os.close(fd)
