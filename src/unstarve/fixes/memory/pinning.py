"""Page-locked memory, from which a GPU copies while the program continues."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.utils.data import get_worker_info

from unstarve.errors import CacheError
from unstarve.fixes.memory.buffers import empty_batch

_ALREADY_PINNED = 712  # another tensor on the same page was pinned


def can_pin() -> bool:
    """Whether there is a GPU to pin for; warns if not, as torch's loader does."""
    if torch.cuda.is_available():
        return True
    warnings.warn(
        "'pin' is set but no accelerator is found: the cache will not be in page-locked memory", stacklevel=3
    )
    return False


def lock_pages(columns: Iterable[torch.Tensor]) -> None:
    """Lock the memory of columns in place as long as they live. Raises CacheError if CUDA refuses."""
    cudart: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call] # torch has no types for it
    for column in columns:
        if column.numel() == 0 or column.is_pinned():
            continue
        address, size_bytes = column.data_ptr(), column.numel() * column.element_size()
        code = int(cudart.cudaHostRegister(address, size_bytes, 0))
        if code not in (0, _ALREADY_PINNED):
            raise CacheError(
                f"CUDA cannot pin {size_bytes:,} bytes (error {code}): use pin=False, or raise `ulimit -l`"
            )
        weakref.finalize(column, cudart.cudaHostUnregister, address)


def empty_pinned_batch(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return page-locked memory for a batch; in a worker, whose batches are sent on, ordinary memory."""
    if get_worker_info() is not None:
        return empty_batch(shape, dtype)
    return torch.empty(*shape, dtype=dtype, pin_memory=True)
