"""Shared memory without a name: nothing in /dev/shm, nothing left behind when a process is killed.

The memory lives as long as a process maps it or a descriptor of it is being sent. Both sides close their
descriptor once they have mapped it.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import weakref
from collections.abc import Callable
from typing import Any

_PAGE_BYTES = mmap.PAGESIZE
_FAILED = ctypes.c_void_p(-1).value


class Mapping:
    """Shared memory as this process sees it.

    When this object and all views of the memory are gone, `unmapped_by` is called with address and size.
    """

    __slots__ = ("_carrier", "address", "size_bytes")

    def __init__(
        self, descriptor: int, size_bytes: int, unmapped_by: Callable[[int, int], None] | None = None
    ) -> None:
        self.size_bytes = size_bytes
        self.address = _map(descriptor, size_bytes)
        self._carrier: Any = (ctypes.c_uint8 * size_bytes).from_address(self.address)
        # Not at exit: other objects may still use the memory then, and the kernel frees it anyway.
        weakref.finalize(self._carrier, unmapped_by or unmap, self.address, size_bytes).atexit = False

    def view(self) -> Any:
        """Return a new buffer over the memory, which lives as long as anything made from it.

        A ctypes array, because all its users hold a reference to it; numpy would refer to the memory behind
        an array or memoryview instead.
        """
        return type(self._carrier).from_buffer(self._carrier)


def create(size_bytes: int) -> tuple[Mapping, int]:
    """Return new zeroed memory with its pages mapped, and a descriptor that the caller must close.

    Raises OSError if there is no memory, no descriptor or no memfd_create (Linux only).
    """
    descriptor = os.memfd_create("unstarve-ring", os.MFD_CLOEXEC)
    try:
        # Running out of memory is an error here instead of a signal during a write.
        os.posix_fallocate(descriptor, 0, size_bytes)
        return Mapping(descriptor, size_bytes), descriptor
    except BaseException:  # also Ctrl-C: the descriptor is ours
        os.close(descriptor)
        raise


def whole_pages(size_bytes: int) -> int:
    """Return the size rounded up to whole pages."""
    return -(-size_bytes // _PAGE_BYTES) * _PAGE_BYTES


def unmap(address: int, size_bytes: int) -> None:
    """Unmap memory."""
    _libc().munmap(address, size_bytes)


def _map(descriptor: int, size_bytes: int) -> int:
    # Not mmap.mmap: that keeps a descriptor open for each mapping.
    protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | mmap.MAP_POPULATE
    address: int | None = _libc().mmap(None, size_bytes, protection, flags, descriptor, 0)
    if address is None or address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot map {size_bytes} bytes of shared memory: {os.strerror(number)}")
    return address


@functools.cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    ]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc
