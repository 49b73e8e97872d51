"""Bytes and shapes → the values that were packed."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unstarve.fixes.datasets.packed.encode import Dims, dims_bytes
from unstarve.fixes.datasets.packed.encode import checksum as checksum_of
from unstarve.fixes.datasets.packed.format import leaf_alignment
from unstarve.fixes.datasets.packed.packed_schema import PackedLeaf, Schema
from unstarve.fixes.io.formats import MAX_TENSOR_BYTES

Memory = NDArray[np.uint8]


def size_of(leaf: PackedLeaf, shape: tuple[int, ...]) -> int:
    """Bytes of a leaf of this shape. ValueError for a shape that torch and numpy would not make."""
    if math.prod(filter(None, shape)) * leaf.itemsize > MAX_TENSOR_BYTES:
        raise ValueError("a tensor is larger than any file")
    return math.prod(shape) * leaf.itemsize


def value_of(leaf: PackedLeaf, shape: tuple[int, ...], memory: Memory) -> Any:
    """The value whose bytes these are; a tensor or an array shares the memory."""
    if leaf.kind == "tensor":
        if memory.size == 0:
            return torch.empty(shape, dtype=leaf.torch_dtype)
        return torch.from_numpy(memory).view(leaf.torch_dtype).view(shape)
    if leaf.kind == "array":
        return memory.view(leaf.dtype).reshape(shape) if memory.size else np.empty(shape, leaf.dtype)
    if leaf.kind == "scalar":
        return memory.view(leaf.dtype)[0]
    return _PLAIN[leaf.kind](memory.tobytes())


_PLAIN: dict[str, Any] = {
    "none": lambda data: None,
    "bool": lambda data: data != b"\0",
    "int": lambda data: int.from_bytes(data, "little", signed=True),
    "float": lambda data: struct.unpack("<d", data)[0],
    "complex": lambda data: complex(*struct.unpack("<dd", data)),
    "str": lambda data: data.decode("utf-8", "surrogatepass"),
    "bytes": lambda data: data,
    "numpy.str": lambda data: np.str_(data.decode("utf-8", "surrogatepass")),
    "numpy.bytes": np.bytes_,
    "bigint": int,
}


@dataclass(frozen=True, slots=True)
class Part:
    """One leaf inside a record: its bytes are `memory[start : start + size]`."""

    leaf: PackedLeaf
    shape: tuple[int, ...]
    start: int
    size: int


def parts_of(schema: Schema, memory: Memory) -> list[Part]:
    """Where each leaf lies in a record. ValueError when the record is not what its schema says.

    Nothing is allocated by sizes the record claims before they are known to fit into it.
    """
    leaves = schema.leaves
    head = 8 * sum(leaf.ndim for leaf in leaves)
    if head > memory.size:
        raise ValueError("it is shorter than its own head")
    dims: Iterator[int] = iter(memory[:head].view("<u8").tolist())
    parts: list[Part] = []
    end = head
    for leaf in leaves:
        shape = tuple(next(dims) for _ in range(leaf.ndim))
        size = size_of(leaf, shape)
        start = _aligned_start(end, size)
        end = start + size
        if end > memory.size:
            raise ValueError("its leaves are larger than the record")
        parts.append(Part(leaf, shape, start, size))
    if end != memory.size:
        raise ValueError("its leaves are smaller than the record")
    return parts


def record_layout(dims: Dims, sizes: list[int]) -> tuple[list[int], int]:
    """Where each leaf of these sizes starts in a record, and where the record ends."""
    end = 8 * sum(len(shape) for shape in dims)
    starts = []
    for size in sizes:
        starts.append(_aligned_start(end, size))
        end = starts[-1] + size
    return starts, end


def sample_of(schema: Schema, memory: Memory) -> Any:
    """The sample in a record; its tensors and arrays share the record's memory."""
    parts = parts_of(schema, memory)
    return schema.sample(
        [value_of(part.leaf, part.shape, memory[part.start : part.start + part.size]) for part in parts]
    )


def record_checksum(schema: Schema, memory: Memory) -> int:
    """The checksum of the sample in a record."""
    parts = parts_of(schema, memory)
    head = dims_bytes(tuple(part.shape for part in parts))
    return checksum_of(head, [memory[part.start : part.start + part.size] for part in parts])


def _aligned_start(end: int, size: int) -> int:
    alignment = leaf_alignment(size)
    return -(-end // alignment) * alignment
