"""What the compiled reader does, in Python: one read after the other, the same results and failures."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_OPEN, _READ, _ENDED, _CHANGED = range(4)
_Failure = tuple[int, int, int, int]


def read_files(
    plan: NDArray[np.int64],
    names: bytes,
    outs: Sequence[tuple[int, int]],
    direct: bool,
    depth: int,
    threads: int,
) -> tuple[list[_Failure], int, bool, bool]:
    """Read each row of the plan into its buffer; failures, direct bytes, O_DIRECT refused, io_uring used."""
    rows: list[list[int]] = plan.tolist()
    buffers = [_view(address, size) for address, size in outs]
    for row in rows:
        _check(row, names, buffers)
    failures = [
        (at, *failure)
        for at, row in enumerate(rows)
        if (failure := _read(row, names, buffers[row[4]])) is not None
    ]
    return failures, 0, False, False


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


def _read(row: list[int], names: bytes, buffer: memoryview) -> tuple[int, int, int] | None:
    name, fd, offset, length, _, to, size, mtime_ns = row
    opened = None
    try:
        if name >= 0:
            try:
                opened = fd = os.open(names[name : names.index(b"\0", name)], os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                return _OPEN, error.errno or 0, 0
        if size >= 0 or mtime_ns >= 0:
            status = os.fstat(fd)
            if size not in (-1, status.st_size) or mtime_ns not in (-1, status.st_mtime_ns):
                return _CHANGED, 0, 0
        return _read_fully(fd, offset, buffer[to : to + length])
    finally:
        if opened is not None:
            os.close(opened)


def _read_fully(fd: int, offset: int, buffer: memoryview) -> tuple[int, int, int] | None:
    got = 0
    while got < len(buffer):
        try:
            more = os.preadv(fd, [buffer[got:]], offset + got)
        except OSError as error:
            return _READ, error.errno or 0, got
        if more == 0:
            return _ENDED, 0, got
        got += more
    return None
