"""Batches on their way to a device: nested tensors that are pinned, copied and kept alive on streams."""

from __future__ import annotations

import copy
from collections import UserDict
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch


def map_tensors(batch: Any, change: Callable[[Any], Any]) -> Any:
    """Return the batch with each tensor changed; containers keep their types, and the batch stays as it was.

    Containers are mappings, lists, tuples, named tuples and dataclasses. Objects that have their own `to`,
    such as packed sequences, are left to `change`, too.
    """
    if isinstance(batch, torch.Tensor) or _has_own_to(batch):
        return change(batch)
    if isinstance(batch, Mapping):
        changed = {key: map_tensors(value, change) for key, value in batch.items()}
        return changed if type(batch) is dict else _like(batch, changed)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(value, change) for value in batch))
    if isinstance(batch, list | tuple):
        values = [map_tensors(value, change) for value in batch]
        return values if type(batch) is list else _made_of(batch, values)
    if is_dataclass(batch) and not isinstance(batch, type):
        made = copy.copy(batch)
        for field in fields(batch):  # past `__setattr__`, which a frozen one refuses
            object.__setattr__(made, field.name, map_tensors(getattr(batch, field.name), change))
        return made
    return batch


def _has_own_to(batch: Any) -> bool:
    """Whether it moves itself. So does what Hugging Face's tokenizers return, a `UserDict` of tensors."""
    return callable(getattr(batch, "to", None)) and not isinstance(batch, UserDict)


def _like(batch: Mapping[Any, Any], changed: dict[Any, Any]) -> Any:
    try:
        made: Any = copy.copy(batch)
        for key, value in changed.items():
            made[key] = value
    except TypeError:  # it cannot be changed
        return _made_of(batch, changed)
    return made


def _made_of(batch: Any, content: Any) -> Any:
    try:
        return type(batch)(content)
    except TypeError:  # containers that cannot be made so become plain ones
        return tuple(content) if isinstance(batch, tuple) else content


def is_plain(item: Any) -> bool:
    """Whether it is a tensor without any meaning beyond its numbers, which can be copied on any stream."""
    return type(item) is torch.Tensor and item.layout is torch.strided


def use_on_this_stream(batch: Any) -> None:
    """Keep a batch of another stream in memory until this thread's current stream is done with it."""

    def record(item: Any) -> Any:
        if is_plain(item) and item.is_cuda:
            item.record_stream(torch.cuda.current_stream(item.device))
        return item

    map_tensors(batch, record)


def pinned(tensor: torch.Tensor) -> torch.Tensor:
    """Return a CPU tensor in page-locked memory, which torch uses again once its copies are done."""
    if tensor.is_pinned() or not tensor.numel():
        return tensor
    return torch.empty_like(tensor, pin_memory=True).copy_(tensor)


def moved(item: Any, device: torch.device) -> Any:
    """Return a tensor, or an object that has its own `to`, on the device."""
    try:
        return item.to(device, non_blocking=True)
    except TypeError:  # many people's own `to` take a device only
        return item.to(device)
