"""Memory that processes share: anonymous, or a mapped file.

A child process gets the same memory, never a copy: a forked child has it already, a spawned one gets a
handle. Its bytes are copied only when it is pickled for something else (a file, another machine).
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import weakref
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import reduction
from pathlib import Path
from typing import Any

import torch

from unstarve.fixes.io.private_files import open_private

# How multiprocessing sends a descriptor to a child; Windows has none, there children get the bytes.
_for_child: Callable[[int], Any] | None = getattr(reduction, "DupFd", None)
LARGE_BYTES = 16 << 10
"""Writes from this size on are cheaper as a system call."""
_RESERVE_STEP_BYTES = 16 << 20
_MAP_NORESERVE = getattr(
    mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0
)  # from Python 3.12 on


class SharedRegion:
    """`size` bytes behind a descriptor, mapped as a whole. Bytes that were never written take no memory.

    Owns the descriptor. `path` is set for a finished file that others may open by name. A tensor that
    `tensor` returned keeps the memory mapped.
    """

    def __init__(
        self, fd: int, *, path: Path | None = None, writable: bool = True, on_disk: bool = False
    ) -> None:
        self.fd = fd
        self.path = path
        self.writable = writable
        self.on_disk = on_disk
        weakref.finalize(self, _close, fd)
        self.size = os.fstat(fd).st_size
        self._reserved_end = 0
        self._memory = _map(fd, self.size, writable)

    @property
    def memory(self) -> mmap.mmap:
        """The mapped bytes; a slice is a copy."""
        return self._memory

    def tensor(self, offset: int, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
        """Return the bytes at an offset as a tensor."""
        count = torch.Size(shape).numel()
        if count == 0:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self._memory, dtype=dtype, count=count, offset=offset).view(shape)

    def read(self, offset: int, size: int) -> bytes:
        """Return a copy of some bytes."""
        return self._memory[offset : offset + size]

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Copy bytes into the region.

        Large ones go through the file: a first write to a mapped page interrupts the program once per page,
        which can take twenty times as long.
        """
        if len(data) < LARGE_BYTES or not hasattr(os, "pwrite"):
            self._memory[offset : offset + len(data)] = data
            return
        left = memoryview(data)
        while left:
            written = os.pwrite(self.fd, left, offset)
            offset, left = offset + written, left[written:]

    def reserve(self, offset: int, size: int) -> None:
        """Allocate disk blocks before writing: a full disk is an OSError here, but a SIGBUS later."""
        end = offset + size
        if self.on_disk and end > self._reserved_end and hasattr(os, "posix_fallocate"):
            end = min(max(end, offset + _RESERVE_STEP_BYTES), self.size)
            os.posix_fallocate(self.fd, offset, end - offset)
            self._reserved_end = end

    def flush(self) -> None:
        """Write everything to the disk and wait for it."""
        os.fsync(self.fd)

    def __reduce__(self) -> Any:
        if self.path is not None:
            return open_file, (self.path,)
        return _from_pieces, (self.size, [(begin, self.read(begin, size)) for begin, size in self._written()])

    def _written(self) -> list[tuple[int, int]]:
        """Return offsets and sizes of the parts that were written; the rest is holes."""
        written: list[tuple[int, int]] = []
        end = 0
        while end < self.size:
            try:
                begin = os.lseek(self.fd, end, os.SEEK_DATA)
            except OSError:  # only a hole follows
                break
            end = os.lseek(self.fd, begin, os.SEEK_HOLE)
            written.append((begin, end - begin))
        return written


def anonymous(size: int, name: str = "unstarve") -> SharedRegion:
    """Make a region of zeros without a file; it is freed with the last process that has it."""
    return sized(unnamed_file(name), size)


def unnamed_file(name: str) -> int:
    """Return the descriptor of a new file in memory; it is freed with the last process that has it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name, os.MFD_CLOEXEC)
    return _unlinked_file(None)


def unlinked(folder: Path, size: int) -> SharedRegion:
    """Make a region of zeros on the disk of `folder`, in a file without a name."""
    return sized(_unlinked_file(folder), size, on_disk=True)


def open_file(path: Path) -> SharedRegion:
    """Map a file that is complete and will not change. Raises OSError unless it belongs to this user."""
    return SharedRegion(open_private(path, os.O_RDONLY), path=path, writable=False, on_disk=True)


def _unlinked_file(folder: Path | None) -> int:
    fd, path = tempfile.mkstemp(prefix="unstarve-", dir=folder)
    Path(path).unlink()
    return fd


def sized(fd: int, size: int, *, on_disk: bool = False) -> SharedRegion:
    """Map an empty file as `size` zeros; owns the descriptor from here on."""
    try:
        os.ftruncate(fd, size)
    except BaseException:  # also Ctrl-C: the descriptor is ours
        _close(fd)
        raise
    return SharedRegion(fd, on_disk=on_disk)


def _map(fd: int, size: int, writable: bool) -> mmap.mmap:
    if writable or not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(fd, size)
    # A finished file: a write into a view of it goes to a private page, never to the file. MAP_NORESERVE: the
    # kernel would refuse files larger than memory otherwise.
    return mmap.mmap(fd, size, mmap.MAP_PRIVATE | _MAP_NORESERVE, mmap.PROT_READ | mmap.PROT_WRITE)


def _close(fd: int) -> None:
    with suppress(OSError):
        os.close(fd)


def _from_pieces(size: int, pieces: list[tuple[int, bytes]]) -> SharedRegion:
    region = anonymous(size)
    for offset, data in pieces:
        region.write(offset, data)
    return region


def _from_handle(handle: Any, path: Path | None, writable: bool, on_disk: bool) -> SharedRegion:
    return SharedRegion(handle.detach(), path=path, writable=writable, on_disk=on_disk)


def _reduce_for_child(region: SharedRegion) -> Any:
    if _for_child is None:
        return region.__reduce__()
    return _from_handle, (_for_child(region.fd), region.path, region.writable, region.on_disk)


reduction.ForkingPickler.register(SharedRegion, _reduce_for_child)
