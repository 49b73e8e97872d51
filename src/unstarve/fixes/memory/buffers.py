"""Where the memory of a batch comes from, in one place.

In a loader's worker process a batch is made in shared memory at once, as torch's own collate does, so that
handing it over copies nothing. Elsewhere the memory of a batch that nobody holds any more is used again. An
engine may put its own allocator here for the process or the thread it runs in.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import get_worker_info

from unstarve.fixes.memory.recycling import Recycled

Allocator = Callable[[Sequence[int], torch.dtype], torch.Tensor]

# Two: the batch that a training loop still holds while the next is made, and the one before.
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
    """Make `empty_batch` use `allocate` in the calling thread; None restores what the process uses."""
    _in_thread.allocate = allocate
