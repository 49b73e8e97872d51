"""Read byte ranges in plain Python: the fallback where the native reader is missing.

No library reads ranges of many files into given memory, so this stays: one range after the other, with the
results and the failures of the native reader. It can read past the page cache as well, because a packed
dataset hands it descriptors that were opened with O_DIRECT, and those need aligned reads.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unstarve.fixes.io.regular_files import open_or_errno

_OPEN, _READ, _ENDED, _CHANGED = range(4)
_O_DIRECT = getattr(os, "O_DIRECT", 0)  # systems without it refuse direct reads
_ALIGNMENT = 4096
_PIECE_BYTES = 512 << 10

_Trouble = tuple[int, int, int]  # kind, errno, bytes read
_Report = tuple[list[tuple[int, int, int, int]], int, bool, bool]


class _DirectRefusedError(Exception):
    """This file cannot be read past the page cache."""


def read_files(
    plan: NDArray[np.int64],
    names: bytes,
    outs: Sequence[tuple[int, int]],
    direct: bool,
    depth: int,
    threads: int,
    uring: bool,
) -> _Report:
    """Read each row of the plan into its buffer.

    Returns the failures, the bytes read directly, whether O_DIRECT was refused and whether io_uring was used.
    `depth`, `threads` and `uring` are for the native reader; here they change nothing.
    """
    rows: list[list[int]] = plan.tolist()
    buffers = [_view(address, size) for address, size in outs]
    for row in rows:
        _check(row, names, buffers)
    failures = []
    direct_bytes = 0
    refused = False
    for at, row in enumerate(rows):
        trouble: _Trouble | None = None
        try:
            trouble, bytes_read = _read(row, names, buffers[row[4]], direct)
            direct_bytes += bytes_read
        except _DirectRefusedError:
            refused = True
            trouble, _ = _read(row, names, buffers[row[4]], False)
        if trouble is not None:
            failures.append((at, *trouble))
    return failures, direct_bytes, refused, False


class FileTable:
    """Files of one structure, which are read by their numbers; none is looked into here."""

    def __init__(
        self,
        names: bytes,
        starts: NDArray[np.int64],
        formats: NDArray[np.uint8],
        rows: NDArray[np.int64],
        structure: bytes,
        tensors: NDArray[np.int64],
        lengths: NDArray[np.int64],
    ) -> None:
        self._names = names
        self._starts = starts
        self._rows = rows
        self._tensors = tensors
        self._lengths = lengths

    def read(
        self,
        files: NDArray[np.int64],
        outs: Sequence[tuple[int, int]],
        taken: NDArray[np.int64] | None,
        looks: bool,
        direct: bool,
        depth: int,
        threads: int,
    ) -> _Report:
        """Read tensor t of file i into row i of out t; `taken` gets the rows of the files."""
        if len(files) and not 0 <= files.min() <= files.max() < len(self._starts):
            raise ValueError("a file is not in the table")
        rows = self._rows[files]
        plan = np.empty((len(files), len(self._tensors), 8), np.int64)
        plan[:, :, 0] = self._starts[files][:, np.newaxis]
        plan[:, :, 1] = -1
        plan[:, :, 2] = rows[:, 2 + self._tensors]
        plan[:, :, 3] = self._lengths
        plan[:, :, 4] = np.arange(len(self._tensors))
        plan[:, :, 5] = np.arange(len(files))[:, np.newaxis] * self._lengths
        plan[:, :, 6:] = rows[:, np.newaxis, :2]
        if taken is not None:
            taken[:] = rows
        return read_files(plan.reshape(-1, 8), self._names, outs, direct, depth, threads, True)


def _check(row: list[int], names: bytes, buffers: Sequence[memoryview]) -> None:
    name, _, offset, length, out, to, _, _ = row
    if name >= len(names):
        raise ValueError("a read names a path outside the table of paths")
    if offset < 0 or length < 0 or to < 0 or offset + length >= 1 << 63:
        raise ValueError("a read has a negative offset or length, or one past any file")
    if not 0 <= out < len(buffers):
        raise ValueError("a read names a buffer that does not exist")
    if to + length > len(buffers[out]):
        raise ValueError("a read goes past the end of its buffer")


def _view(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")


def _read(row: list[int], names: bytes, out: memoryview, direct: bool) -> tuple[_Trouble | None, int]:
    """Return what went wrong, if anything, and the bytes read past the page cache."""
    name, fd, offset, length, _, to, size, mtime_ns = row
    if name < 0 and fd < 0:
        return (_OPEN, errno.EBADF, 0), 0
    if direct and not _O_DIRECT:
        raise _DirectRefusedError
    opened = None
    if name >= 0:
        try:
            opened = fd = _open(names[name : names.index(b"\0", name)], direct)
        except OSError as error:
            return (_OPEN, error.errno or 0, 0), 0
    try:
        if direct and not _is_direct(fd):
            raise _DirectRefusedError
        if not _is_unchanged(fd, size, mtime_ns):
            return (_CHANGED, 0, 0), 0
        if direct:
            return _read_directly(fd, offset, out[to : to + length])
        return _read_through_cache(fd, offset, out[to : to + length]), 0
    finally:
        if opened is not None:
            os.close(opened)


def _open(path: bytes, direct: bool) -> int:
    try:
        return open_or_errno(path, _O_DIRECT if direct else 0)
    except OSError as error:
        if direct and error.errno == errno.EINVAL:
            raise _DirectRefusedError from error
        raise


def _is_direct(fd: int) -> bool:
    import fcntl  # here, because only systems with O_DIRECT come this far

    try:
        return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & _O_DIRECT)
    except OSError:
        return True  # not open: the read reports it


def _is_unchanged(fd: int, size: int, mtime_ns: int) -> bool:
    if size < 0 and mtime_ns < 0:
        return True
    try:
        status = os.fstat(fd)
    except OSError:
        return True  # the read reports why
    return size in (-1, status.st_size) and mtime_ns in (-1, status.st_mtime_ns)


def _pread(fd: int, out: memoryview, offset: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(fd, [out], offset)
    os.lseek(fd, offset, os.SEEK_SET)
    data = os.read(fd, len(out))
    out[: len(data)] = data
    return len(data)


def _read_through_cache(fd: int, offset: int, out: memoryview) -> _Trouble | None:
    """Fill `out` from the file; return what went wrong, if anything."""
    got = 0
    while got < len(out):
        try:
            more = _pread(fd, out[got:], offset + got)
        except OSError as error:
            return _READ, error.errno or 0, got
        if more == 0:
            return _ENDED, 0, got
        got += more
    return None


def _read_directly(fd: int, offset: int, out: memoryview) -> tuple[_Trouble | None, int]:
    """Fill `out` past the page cache: read aligned pieces into aligned memory, then copy the wanted part.

    Returns what went wrong, if anything, and the bytes read.
    """
    end = offset + len(out)
    at = offset - offset % _ALIGNMENT
    bytes_read = 0
    with mmap.mmap(-1, _PIECE_BYTES) as bounce, memoryview(bounce) as piece:
        while at < end:
            size = min(_PIECE_BYTES, end + -end % _ALIGNMENT - at)
            try:
                got = _pread(fd, piece[:size], at)
            except OSError as error:
                if error.errno == errno.EINVAL:
                    raise _DirectRefusedError from error
                return (_READ, error.errno or 0, max(at - offset, 0)), bytes_read
            bytes_read += got
            first, last = max(at, offset), min(at + got, end)
            if first < last:
                out[first - offset : last - offset] = piece[first - at : last - at]
            if at + got < end and (got == 0 or got % _ALIGNMENT):
                return (_ENDED, 0, max(last - offset, 0)), bytes_read
            at += got
    return None, bytes_read
