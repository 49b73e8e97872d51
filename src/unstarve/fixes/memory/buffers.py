"""Memory for batches.

In a loader's worker process a batch is built in shared memory, as torch's own collate does, so that sending
it copies nothing. Elsewhere the memory of a batch that nobody holds any more is used again: fresh memory
costs more than filling it, because every page is faulted in, and the C library returns large blocks to the
system when they are freed. An engine may set its own allocator for its process or thread.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import get_worker_info

Allocator = Callable[[Sequence[int], torch.dtype], torch.Tensor]

_MIN_RECYCLED_BYTES = 256 << 10  # the C library keeps smaller blocks itself
_HUGE_BYTES = 4 << 20  # from here on huge pages waste little
_HUGE_PAGE_BYTES = 2 << 20  # on most machines
_IDLE_BYTES = 256 << 20  # keeping more is not worth the page faults it saves
_MAX_SIZES = 8  # of blocks; a program with more would keep memory for batches that never come again


class Recycled:
    """Allocates page-aligned batch memory; keeps up to `most` unused blocks of each size.

    Of large blocks it keeps fewer: at most `_IDLE_BYTES` of one size, but always one block.

    No lock: a block comes back wherever the last reference to its batch is dropped, even in here.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._free: dict[int, deque[NDArray[np.uint8]]] = {}

    def __call__(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return an uninitialized tensor. Thread-safe."""
        size_bytes = math.prod(shape) * dtype.itemsize
        if size_bytes < _MIN_RECYCLED_BYTES:
            return torch.empty(tuple(shape), dtype=dtype)
        if len(self._free) > _MAX_SIZES:
            self._free.clear()
        most = min(self._most, max(1, _IDLE_BYTES // size_bytes))
        free = self._free.setdefault(size_bytes, deque(maxlen=most))
        try:
            block = free.pop()  # the last one used: parts of it may be in the CPU's cache
        except IndexError:
            block = fresh_memory(size_bytes)
        lent = block[:]  # lives as long as the tensor's storage does
        weakref.finalize(lent, free.append, block).atexit = False
        return torch.frombuffer(lent, dtype=dtype).view(tuple(shape))


def fresh_memory(size_bytes: int) -> NDArray[np.uint8]:
    """Return uninitialized, page-aligned memory: private, because shared memory has no huge pages.

    Large memory starts at a huge page; otherwise its beginning would consist of small ones.
    """
    if not hasattr(mmap, "MAP_PRIVATE") or size_bytes == 0:  # not a POSIX system
        return np.empty(size_bytes, np.uint8)
    huge = size_bytes >= _HUGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE")
    mapped_bytes = size_bytes + _HUGE_PAGE_BYTES if huge else size_bytes
    memory: Any = mmap.mmap(-1, mapped_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if huge:
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    block = np.frombuffer(memory, np.uint8)
    skipped = -block.ctypes.data % _HUGE_PAGE_BYTES if huge else 0  # never touched, so they cost nothing
    return block[skipped : skipped + size_bytes]


# Two: the batch that a training loop still holds while the next one is made, and the one before.
_recycled = Recycled(2)
_allocate: Allocator | None = None
_in_thread = threading.local()


def empty_batch(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return an uninitialized, C-contiguous CPU tensor to build a batch in."""
    allocate: Allocator | None = getattr(_in_thread, "allocate", None) or _allocate
    if allocate is not None:
        return allocate(shape, dtype)
    if get_worker_info() is None:
        return _recycled(shape, dtype)
    storage: Any = torch.UntypedStorage._new_shared(math.prod(shape) * dtype.itemsize)  # type: ignore[no-untyped-call] # private, as in default_collate
    return torch.empty(0, dtype=dtype).set_(storage).view(*shape)


def use_allocator(allocate: Allocator | None) -> None:
    """Make `empty_batch` use `allocate` in this process; None restores the default."""
    global _allocate
    _allocate = allocate


def use_allocator_in_thread(allocate: Allocator | None) -> None:
    """Make `empty_batch` use `allocate` in the calling thread; None restores the process's allocator."""
    _in_thread.allocate = allocate
