"""Batch memory that is used again once nobody holds the batch.

Fresh memory costs more than filling it: every page is faulted in. The C library gives large blocks back to
the system when they are freed, all the more so where one thread allocates and another frees.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

_WORTH_BYTES = 256 << 10  # smaller blocks stay with the C library
_HUGE_BYTES = 4 << 20  # from here on huge pages waste little
_HUGE_PAGE_BYTES = 2 << 20  # on most machines
_IDLE_BYTES = 256 << 20  # more is not worth the page faults that it saves
_SIZES = 8  # of blocks; a program with more would keep memory for batches that do not come again


class Recycled:
    """Allocates batch memory, page-aligned; keeps at most `most` blocks of a size that nobody holds.

    Large ones are fewer: those of a size, but for one, take no more than `_IDLE_BYTES`.

    No lock: blocks come back wherever the last reference to a batch is dropped, even in here.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._free: dict[int, deque[NDArray[np.uint8]]] = {}

    def __call__(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return an uninitialized tensor; may be called by several threads at once."""
        size_bytes = math.prod(shape) * dtype.itemsize
        if size_bytes < _WORTH_BYTES:
            return torch.empty(tuple(shape), dtype=dtype)
        if len(self._free) > _SIZES:
            self._free.clear()
        most = min(self._most, max(1, _IDLE_BYTES // size_bytes))
        free = self._free.setdefault(size_bytes, deque(maxlen=most))
        try:
            block = free.pop()  # the last one used: parts of it may be in the CPU's cache
        except IndexError:
            block = fresh_memory(size_bytes)
        lent = block[:]  # lives as long as the tensor's storage does, whoever holds that
        weakref.finalize(lent, free.append, block).atexit = False
        return torch.from_numpy(lent).view(dtype).view(tuple(shape))


def fresh_memory(size_bytes: int) -> NDArray[np.uint8]:
    """Return uninitialized memory that starts at a page: private, since shared memory has no huge pages.

    Large memory starts at a huge page, or else what lies before the first would be of small ones.
    """
    if not hasattr(mmap, "MAP_PRIVATE") or size_bytes == 0:  # another system
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
