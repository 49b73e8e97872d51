"""Page-locked memory, from which a GPU copies by itself while the program goes on."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.utils.data import get_worker_info

from unstarve.errors import CacheError
from unstarve.fixes.memory.buffers import empty_batch

_ALREADY_PINNED = 712  # a neighbour on the same page was


def can_pin() -> bool:
    """Whether there is a GPU to pin for; warns where there is none, as torch's loader does."""
    if torch.cuda.is_available():
        return True
    warnings.warn(
        "'pin' is set but no accelerator is found: the cache will not be in page-locked memory", stacklevel=3
    )
    return False


def lock_pages(columns: Iterable[torch.Tensor]) -> None:
    """Lock the memory of columns in place, until they are gone. Raises CacheError where CUDA refuses."""
    cudart: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call] # torch has no types for it
    for column in columns:
        if column.numel() == 0 or column.is_pinned():
            continue
        address, size_bytes = column.data_ptr(), column.numel() * column.element_size()
        code = int(cudart.cudaHostRegister(address, size_bytes, 0))
        if code not in (0, _ALREADY_PINNED):
            raise CacheError(
                f"CUDA would not pin {size_bytes:,} bytes (error {code}): use pin=False, or raise `ulimit -l`"
            )
        weakref.finalize(column, cudart.cudaHostUnregister, address)


def empty_pinned_batch(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return memory for a batch that a GPU can copy from; in a worker, whose batches travel, as usual."""
    if get_worker_info() is not None:
        return empty_batch(shape, dtype)
    return torch.empty(*shape, dtype=dtype, pin_memory=True)
