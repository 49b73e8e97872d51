"""Samples → slot: torch's `default_collate`, with tensors stacked in the slot they will be sent from.

`SlotCollate` takes a short cut for dicts and tuples of tensors, which most datasets return, and leaves
everything else, errors included, to torch. `RepeatCollate` builds no batch at all: once two batches in a row
have looked the same, the place of each column in a slot and the pickle of the batch are known. It stacks the
samples into tensors that each slot keeps for that layout and returns a `FilledSlot`, which only torch's
worker loop sees on its way to the queue.

This is not a general collate function: it stands in for `default_collate` only where the output goes to a
slot.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils.data import default_collate
from torch.utils.data._utils import collate

from unstarve.fixes.loader.ring.batch_pickle import NotPackable, has_code, is_plain, pack
from unstarve.fixes.loader.ring.slots import BUSY, FREE, HEADER_BYTES, Slot, aligned

Allocate = Callable[[Sequence[int], torch.dtype], torch.Tensor]

_functions: dict[Any, Callable[..., Any]] = collate.default_collate_fn_map
_default: Callable[[Any], Any] = collate.default_collate
_NOT_BY_DEFAULT = frozenset({dict, tuple, Mapping, Sequence})
"""Types that torch takes apart itself, unless a user registered a collate function for one of them."""


class SlotCollate:
    """Stands in for `default_collate`; from now on torch's own stacks in memory from `allocate`, too."""

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._stack = self._stacked  # one bound method, so that `is` recognizes it
        if _functions[torch.Tensor] is collate.collate_tensor_fn:
            _functions[torch.Tensor] = self._stack

    @property
    def is_in_place(self) -> bool:
        """Whether tensors are stacked here: no user has registered another collate function."""
        return _functions[torch.Tensor] is self._stack and _NOT_BY_DEFAULT.isdisjoint(_functions)

    def __call__(self, samples: Any) -> Any:
        if type(samples) is list and samples and self.is_in_place:
            first = samples[0]
            kind = type(first)
            try:
                if kind is dict:
                    return {key: self._column([sample[key] for sample in samples]) for key in first}
                if kind is tuple and all(len(sample) == len(first) for sample in samples):
                    return [self._column(values) for values in zip(*samples, strict=True)]
                if kind is torch.Tensor:
                    return self._stacked(samples)
            except Exception:  # torch collates it or raises its own error
                pass
        return _default(samples)

    def _column(self, values: Any) -> Any:
        return self._stacked(values) if type(values[0]) is torch.Tensor else _default(values)

    def _stacked(self, tensors: Any, *, collate_fn_map: Any = None) -> Any:
        first = tensors[0]
        if type(first) is torch.Tensor and first.is_cpu and first.layout is torch.strided and first.numel():
            try:
                out = self._allocate((len(tensors), *first.shape), first.dtype)
                return torch.stack(tensors, 0, out=out)
            except Exception:  # torch collates it or raises its own error
                pass
        return collate.collate_tensor_fn(tensors, collate_fn_map=collate_fn_map)


_numbers: Callable[[Any], torch.Tensor] = default_collate


class SlotColumn(NamedTuple):
    """One tensor of a batch: the type of its values and its place in the slot."""

    key: Any
    """The value's key in a sample; None if the value is the sample."""
    kind: type[Any]
    shape: torch.Size
    dtype: torch.dtype
    offset: int

    def fill(self, samples: list[Any], out: torch.Tensor) -> bool:
        """Write the values to `out`; returns False or raises if they differ from those before."""
        values = samples if self.key is None else [sample[self.key] for sample in samples]
        first = values[0]
        if type(first) is not self.kind:
            return False
        if self.kind is torch.Tensor:
            if first.shape != self.shape[1:] or first.dtype is not self.dtype or not first.is_cpu:
                return False
            torch.stack(values, 0, out=out)
            return True
        numbers = _numbers(values)
        if numbers.shape != self.shape or numbers.dtype is not self.dtype:
            return False
        out.copy_(numbers)
        return True


@dataclass(frozen=True, eq=False, slots=True)
class SlotLayout:
    """The structure of a batch and the place of each part in a slot."""

    kind: type[Any]
    keys: tuple[Any, ...]
    sample_count: int
    columns: tuple[SlotColumn, ...]
    table_offset: int
    tail: bytes
    """The bytes at `table_offset`: the table and the pickle."""

    @property
    def end(self) -> int:
        """Bytes of a slot that it takes."""
        return self.table_offset + len(self.tail)

    def suits(self, samples: list[Any]) -> bool:
        """Whether the number of samples and their keys match; a missing key is found when filling."""
        first = samples[0]
        if len(samples) != self.sample_count or type(first) is not self.kind:
            return False
        if self.kind is dict:
            return tuple(first) == self.keys
        return self.kind is not tuple or all(len(sample) == len(self.keys) for sample in samples)


class FilledSlot(NamedTuple):
    """A batch that is already in its slot."""

    slot: Slot
    layout: SlotLayout


class SlotTensors(NamedTuple):
    """The tensors that a slot keeps for a layout, on its memory; table and pickle are already written."""

    layout: SlotLayout
    columns: list[torch.Tensor]


class RepeatCollate:
    """Stands in for `default_collate` in a worker. `take` returns a free slot of at least that many bytes."""

    def __init__(self, collate: SlotCollate, take: Callable[[int], Slot | None]) -> None:
        self._collate = collate
        self._take = take
        self._layout: SlotLayout | None = None
        self._last_shape: Any = None

    def __call__(self, samples: Any) -> Any:
        if type(samples) is not list or not samples or not self._collate.is_in_place:
            return self._collate(samples)
        if self._layout is not None and self._layout.suits(samples):
            filled = self._filled(self._layout, samples)
            if filled is not None:
                return filled
        batch = self._collate(samples)
        seen_shape = _described(samples, batch)
        if seen_shape is not None and seen_shape == self._last_shape:
            with contextlib.suppress(NotPackable):
                self._layout = _layout_for(seen_shape, batch)
        self._last_shape = seen_shape
        return batch

    def _filled(self, layout: SlotLayout, samples: list[Any]) -> FilledSlot | None:
        slot = self._take(layout.end)
        if slot is None:
            return None
        slot.flag.value = BUSY  # no one else may take it meanwhile
        if slot.tensors is None or slot.tensors.layout is not layout:
            slot.tensors = _tensors_on(layout, slot)
        try:
            if all(map(SlotColumn.fill, layout.columns, itertools.repeat(samples), slot.tensors.columns)):
                return FilledSlot(slot, layout)
        except Exception:  # torch collates it or raises its own error
            pass
        slot.flag.value = FREE
        return None


class _BatchShape(NamedTuple):
    kind: type[Any]
    keys: tuple[Any, ...]
    sample_count: int
    columns: tuple[tuple[type[Any], torch.Size, torch.dtype], ...]


def _described(samples: list[Any], batch: Any) -> _BatchShape | None:
    """Describe a batch of samples; None if it is more than columns of tensors and numbers."""
    first = samples[0]
    kind = type(first)
    if kind is dict and all(type(key) is str for key in first):
        keys, values, tensors = tuple(first), list(first.values()), list(batch.values())
    elif kind is tuple:
        keys, values, tensors = tuple(range(len(first))), list(first), batch
    elif kind is torch.Tensor:
        keys, values, tensors = (None,), [first], [batch]
    else:
        return None
    if not keys or not all(map(_is_column, values, tensors)):
        return None
    columns = (
        (type(value), tensor.shape, tensor.dtype) for value, tensor in zip(values, tensors, strict=True)
    )
    return _BatchShape(kind, keys, len(samples), tuple(columns))


def _is_column(value: Any, tensor: Any) -> bool:
    """Whether stacking turns the value into a row of plain memory."""
    if type(value) is torch.Tensor:
        return _is_memory(value) and _is_memory(tensor)
    return type(value) in (int, float) and _is_memory(tensor)


def _is_memory(tensor: Any) -> bool:
    return type(tensor) is torch.Tensor and has_code(tensor.dtype) and is_plain(tensor) and tensor.numel() > 0


def _layout_for(seen_shape: _BatchShape, batch: Any) -> SlotLayout:
    columns, places, end = [], [], HEADER_BYTES
    for key, (kind, shape, dtype) in zip(seen_shape.keys, seen_shape.columns, strict=True):
        columns.append(SlotColumn(key, kind, shape, dtype, end))
        size_bytes = shape.numel() * dtype.itemsize
        places += [end, size_bytes]
        end = aligned(end + size_bytes)
    tail = struct.pack(f"<{len(places)}Q", *places) + pack(batch).stream
    return SlotLayout(seen_shape.kind, seen_shape.keys, seen_shape.sample_count, tuple(columns), end, tail)


def _tensors_on(layout: SlotLayout, slot: Slot) -> SlotTensors:
    memory = slot.mapping.view()
    ctypes.memmove(slot.mapping.address + layout.table_offset, layout.tail, len(layout.tail))
    tensors = (
        torch.frombuffer(memory, dtype=column.dtype, count=column.shape.numel(), offset=column.offset)
        for column in layout.columns
    )
    shapes = (column.shape for column in layout.columns)
    return SlotTensors(layout, [tensor.view(shape) for tensor, shape in zip(tensors, shapes, strict=True)])
