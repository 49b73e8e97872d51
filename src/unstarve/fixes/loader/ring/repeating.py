"""Batches that look like an earlier one: their pickle is known, and so is what it builds.

Batch after batch is the same tree of dicts, lists and tuples with tensors of the same types and shapes; only
the bytes differ. `Repeats`, in a worker, finds the stream that `pack` has made for such a batch before;
`Plans`, in the training process, what that stream builds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from unstarve.fixes.loader.ring.packing import (
    LARGE_BYTES,
    Arrays,
    Packed,
    Region,
    has_code,
    is_plain,
    loaded,
    pack,
)

_MOST_KNOWN = 64
"""A loader whose batches all differ must not fill memory with what they look like."""
_MOST_DEPTH = 16


class Repeats:
    """Streams by what the batch looked like."""

    def __init__(self) -> None:
        self._streams: dict[tuple[Any, ...], bytes | None] = {}

    def pack(self, batch: Any) -> Packed | None:
        """Return what `packing.pack` would; None where no batch has looked like this before."""
        looks: list[Any] = []
        tensors: list[torch.Tensor] = []
        if not _look(batch, looks, tensors, _MOST_DEPTH) or _share_memory(tensors):
            return None
        key = tuple(looks)
        if key not in self._streams:
            if len(self._streams) >= _MOST_KNOWN:
                self._streams.clear()
            self._streams[key] = None
            return None
        stream = self._streams[key]
        if stream is None:
            stream = self._streams[key] = pack(batch).stream
        return Packed(stream, [Region(tensor, tensor.data_ptr(), tensor.nbytes) for tensor in tensors])


def _look(node: Any, looks: list[Any], tensors: list[torch.Tensor], depth: int) -> bool:
    """Write down all that decides the pickle of a tree; False where there is more to it than shapes."""
    kind = type(node)
    if kind is torch.Tensor:
        tensors.append(node)
        looks.append((node.dtype, node.shape, node.stride()))
        return _is_simple(node)
    if kind is dict:
        looks.append((kind, *node))
        if not all(type(key) is str for key in node):
            return False
        node = node.values()
    elif kind is list or kind is tuple:
        looks.append((kind, len(node)))
    else:
        return False
    # Without anything inside it could be one object in two places.
    return bool(node) and depth > 0 and all(_look(item, looks, tensors, depth - 1) for item in node)


def _is_simple(tensor: torch.Tensor) -> bool:
    """Whether `pack` would take its memory as it lies there. Large ones need a closer look."""
    return (
        has_code(tensor.dtype)
        and is_plain(tensor)
        and tensor.is_contiguous()
        and 0 < tensor.nbytes <= LARGE_BYTES
        and tensor.data_ptr() != 0
    )


def _share_memory(tensors: list[torch.Tensor]) -> bool:
    return len({tensor.untyped_storage()._cdata for tensor in tensors}) < len(tensors)


Plan = Callable[[Arrays], Any]


class Plans:
    """What the streams of batches that repeat build."""

    def __init__(self) -> None:
        self._plans: dict[bytes, Plan] = {}

    def build(self, stream: bytes, arrays: Arrays) -> Any:
        """Return the batch of this stream, which `Repeats.pack` gave, with `arrays` behind its numbers."""
        plan = self._plans.get(stream)
        if plan is None:
            if len(self._plans) >= _MOST_KNOWN:
                self._plans.clear()
            plan = self._plans[stream] = _planned(loaded(stream, _Blanks))
        return plan(arrays)


class _Blank(NamedTuple):
    """Where a tensor goes, and what `Arrays.tensor` is to be told."""

    told: tuple[Any, ...]


class _Blanks:
    @staticmethod
    def tensor(*told: Any) -> _Blank:
        return _Blank(told)


def _planned(tree: Any) -> Plan:
    if type(tree) is _Blank:
        told = tree.told
        return lambda arrays: arrays.tensor(*told)
    if type(tree) is dict:
        items = [(key, _planned(item)) for key, item in tree.items()]
        return lambda arrays: {key: plan(arrays) for key, plan in items}
    plans = [_planned(item) for item in tree]
    if type(tree) is tuple:
        return lambda arrays: tuple([plan(arrays) for plan in plans])
    return lambda arrays: [plan(arrays) for plan in plans]
