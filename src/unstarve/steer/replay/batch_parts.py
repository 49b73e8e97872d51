"""What a batch is made of, as far as copying it is concerned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

_VALUES = (str, bytes, int, float, complex, bool, type(None))
_NEVER_COPIED = (
    *_VALUES,
    Enum,
    type,
    ModuleType,
    FunctionType,
    BuiltinFunctionType,
    torch.dtype,
    torch.device,
)


@dataclass(frozen=True, slots=True)
class BatchParts:
    """The parts of a batch that are not copied like any other Python value."""

    tensors: list[torch.Tensor] = field(default_factory=list)
    stay_on_host: list[torch.Tensor] = field(default_factory=list)
    """Those of `tensors` that would be useless on a device."""
    flat_lists: list[list[Any]] = field(default_factory=list)
    """Lists of plain values (tokens, captions): to copy them item by item would be slow."""
    opaque: list[Any] = field(default_factory=list)
    """Objects of other classes, inner ones first: copying one may fail."""


def find_parts(batch: Any) -> BatchParts:
    """Look through containers, dataclasses and the attributes of unknown objects; each part once."""
    parts = BatchParts()
    seen: set[int] = set()
    pending = [batch]
    while pending:
        item = pending.pop()
        if id(item) in seen or isinstance(item, _NEVER_COPIED):
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            parts.tensors.append(item)
            continue
        if type(item) is list and all(type(value) in _VALUES for value in item):
            parts.flat_lists.append(item)
            continue
        if isinstance(item, PackedSequence):
            parts.stay_on_host.append(item.batch_sizes)
        if not isinstance(item, (dict, list, tuple, set, frozenset)):
            parts.opaque.append(item)
        pending.extend(_children(item))
    parts.opaque.reverse()
    return parts


def _children(item: Any) -> Iterable[Any]:
    if isinstance(item, Mapping):
        yield from item.values()
    elif isinstance(item, (list, tuple, set, frozenset)):
        yield from item
    elif is_dataclass(item):
        yield from (getattr(item, part.name, None) for part in fields(item))
    yield from getattr(item, "__dict__", {}).values()
