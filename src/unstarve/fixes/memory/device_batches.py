"""Batches on their way to a device: nested tensors that are pinned, copied and kept alive on streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch


def map_tensors(batch: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return the batch with each tensor changed; mappings, lists, tuples and named tuples keep their types.

    Objects that have their own `to`, such as packed sequences, are left to `change`, too.
    """
    if isinstance(batch, torch.Tensor) or (hasattr(batch, "to") and not isinstance(batch, Mapping)):
        return change(batch)
    if isinstance(batch, Mapping):
        changed = {key: map_tensors(value, change) for key, value in batch.items()}
        return changed if type(batch) is dict else _like(batch, changed)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(value, change) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(map_tensors(value, change) for value in batch)
    return batch


def _like(batch: Mapping[Any, Any], changed: dict[Any, Any]) -> Any:
    try:
        return type(batch)(changed)  # type: ignore[call-arg] # mappings that cannot be made so stay dicts
    except TypeError:
        return changed


def use_on_this_stream(batch: Any) -> None:
    """Keep a batch of another stream in memory until this thread's current stream is done with it."""

    def record(tensor: torch.Tensor) -> torch.Tensor:
        if isinstance(tensor, torch.Tensor) and tensor.is_cuda:
            tensor.record_stream(torch.cuda.current_stream(tensor.device))
        return tensor

    map_tensors(batch, record)


def pinned(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in page-locked memory, which torch uses again once its copies are done."""
    if not isinstance(tensor, torch.Tensor) or not tensor.is_cpu or tensor.is_pinned() or not tensor.numel():
        return tensor
    if tensor.layout is not torch.strided:
        return tensor
    return torch.empty_like(tensor, pin_memory=True).copy_(tensor)
