"""How much of a file is in the page cache, and how to evict it. Needs no privilege."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from unstarve.fixes.io.regular_files import open_regular

_CACHESTAT = 451  # the same number on every architecture


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Counts(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cache", "dirty", "writeback", "evicted", "recently_evicted")
    )


def residency(file: str | Path | int, offset: int = 0, length: int = 0) -> float | None:
    """Return the share (0–1) of a file's pages, or of a range of it, that are in the page cache.

    `file` is a path or a descriptor; `length` 0 means to the end. None if the kernel cannot tell: before
    Linux 6.5, on other systems, or for a file that the user neither owns nor may write.
    """
    if not sys.platform.startswith("linux"):
        return None
    if isinstance(file, int):
        return _residency(file, offset, length)
    fd = open_regular(file)
    try:
        return _residency(fd, offset, length)
    finally:
        os.close(fd)


def _residency(fd: int, offset: int, length: int) -> float | None:
    end = os.fstat(fd).st_size
    if length:
        end = min(end, offset + length)
    if end <= offset:
        return None
    page = os.sysconf("SC_PAGE_SIZE")
    counts = _Counts()
    libc = ctypes.CDLL(None, use_errno=True)
    stretch = _Range(offset, end - offset)
    if libc.syscall(_CACHESTAT, fd, ctypes.byref(stretch), ctypes.byref(counts), 0) != 0:
        return None
    pages = (end - 1) // page - offset // page + 1
    return min(int(counts.cache) / pages, 1.0)


def evict(path: str | Path) -> None:
    """Write a file's dirty pages to storage, then drop it from the page cache; only Linux does the latter."""
    fd = open_regular(path)
    try:
        os.fsync(fd)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
