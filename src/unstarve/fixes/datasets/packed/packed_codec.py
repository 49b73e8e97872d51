"""A sample ↔ its schema, shapes and bytes."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from unstarve.errors import UsageError
from unstarve.fixes.datasets.packed.packed_format import (
    MAX_DEPTH,
    PackedLeaf,
    Schema,
    leaf_alignment,
    storable,
    tensor_type,
)
from unstarve.fixes.io.formats import MAX_TENSOR_BYTES
from unstarve.fixes.samples.structure import Node, Structure, Tree, nodes_of, take_apart

Dims: TypeAlias = tuple[tuple[int, ...], ...]
Payload: TypeAlias = "bytes | memoryview"

_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Encoded:
    """A sample as it is written: dims and bytes of each leaf, in order."""

    schema: Schema
    dims: Dims
    payloads: tuple[Payload, ...]
    checksum: int

    @property
    def size_bytes(self) -> int:
        """Bytes of all payloads."""
        return sum(len(payload) for payload in self.payloads)


def encode(sample: Any) -> Encoded:
    """Encode a sample. The payloads share memory with its arrays and tensors if possible.

    Raises UsageError for a value that cannot be packed, with its path in the sample.
    """
    try:
        tree, values = take_apart(sample, _container_kind)
    except _CannotPackError as error:
        raise UsageError(f"cannot be packed: it is {error}") from None
    _check_keys(tree)
    encoded = []
    for number, value in enumerate(values):
        try:
            encoded.append(_encoded(value))
        except _CannotPackError as error:
            path = next(path for path, part in nodes_of(tree) if part == number)
            raise UsageError(f"cannot be packed: {path or 'it'} is {error}") from None
    dims = tuple(dims for _, dims, _ in encoded)
    payloads = tuple(payload for _, _, payload in encoded)
    schema = Structure(tree, tuple(leaf for leaf, _, _ in encoded))
    return Encoded(schema, dims, payloads, checksum(dims_bytes(dims), payloads))


def dims_bytes(dims: Dims) -> bytes:
    """Return the dims of all leaves as a record starts with them."""
    return np.array([size for shape in dims for size in shape], "<u8").tobytes()


def checksum(head: bytes, payloads: Sequence[Any]) -> int:
    """Return the CRC-32 of a sample's dims and payloads."""
    crc = zlib.crc32(head)
    for payload in payloads:
        crc = zlib.crc32(payload, crc)
    return crc


class _CannotPackError(Exception):
    """Says what a value is and what to return instead."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")


_EncodedLeaf: TypeAlias = tuple[PackedLeaf, tuple[int, ...], Payload]


def _container_kind(value: Any, depth: int) -> type[Any] | None:
    kind = type(value)
    if kind not in (tuple, list, dict):
        return None
    if depth >= MAX_DEPTH:
        raise _CannotPackError(f"nested more than {MAX_DEPTH} deep", "return a flatter sample")
    return kind


def _check_keys(tree: Tree) -> None:
    if _has_storable_keys(tree):
        return
    for path, part in nodes_of(tree):
        for key in part.keys or () if isinstance(part, Node) else ():
            if type(key) not in (str, int):
                what = f"{path or 'it'} is a dict with a key of type {type(key).__name__}"
                raise UsageError(f"cannot be packed: {what}; use str or int keys")


def _has_storable_keys(tree: Tree) -> bool:
    if isinstance(tree, int):
        return True
    keys = tree.keys or ()
    return all(type(key) in (str, int) for key in keys) and all(map(_has_storable_keys, tree.children))


def _encoded(value: Any) -> _EncodedLeaf:
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, np.generic):
        return _numpy_scalar(value)
    if type(value) in (np.ndarray, np.memmap):
        return _array(value)
    if type(value) is int and value not in _INT64:
        if abs(value) >= 10**4000:  # Python refuses to read longer ones
            raise _CannotPackError("an int of over 4000 digits", "return bytes")
        return _text("bigint", str(value).encode())
    plain = _TO_BYTES.get(type(value))
    if plain is not None:
        kind, to_bytes = plain
        return PackedLeaf(kind), (), to_bytes(value)
    if type(value) is str:
        return _text("str", value.encode("utf-8", "surrogatepass"))
    if type(value) is bytes:
        return _text("bytes", value)
    remedy = "return tensors, arrays, numbers, text, bytes, or tuples, lists and dicts of them"
    raise _CannotPackError(f"of type {_type_name(value)}", remedy)


_TO_BYTES: dict[type, tuple[str, Callable[[Any], bytes]]] = {
    type(None): ("none", lambda value: b""),
    bool: ("bool", lambda value: b"\1" if value else b"\0"),
    int: ("int", lambda value: value.to_bytes(8, "little", signed=True)),
    float: ("float", lambda value: np.float64(value).tobytes()),
    complex: ("complex", lambda value: np.complex128(value).tobytes()),
}


def _text(kind: str, payload: bytes) -> _EncodedLeaf:
    return PackedLeaf(kind, ndim=1), (len(payload),), payload


def _tensor(value: torch.Tensor) -> _EncodedLeaf:
    if type(value) is not torch.Tensor:
        what = f"of type {_type_name(value)}, which would come back as a plain tensor"
        raise _CannotPackError(what, "return value.as_subclass(torch.Tensor)")
    if not value.is_cpu:
        raise _CannotPackError(f"a tensor on {value.device}", "return value.cpu()")
    if value.requires_grad:
        raise _CannotPackError("a tensor that requires gradients", "return value.detach()")
    if value.layout != torch.strided or value.is_quantized or value.is_nested:
        raise _CannotPackError(
            f"a tensor of layout {value.layout} and type {value.dtype}", "return a dense tensor"
        )
    name = str(value.dtype).removeprefix("torch.")
    try:
        tensor_type(name)
    except ValueError:
        raise _CannotPackError(f"a tensor of type {value.dtype}", "return another type") from None
    flat = value.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    return PackedLeaf("tensor", name, value.ndim), tuple(value.shape), flat.numpy().data


def _array(value: np.ndarray[Any, Any]) -> _EncodedLeaf:
    if not storable(value.dtype):
        raise _CannotPackError(
            f"an array of type {value.dtype}", "return numbers, dates or text in plain arrays"
        )
    flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    return PackedLeaf("array", value.dtype.str, value.ndim), value.shape, flat.data


def _numpy_scalar(value: np.generic) -> _EncodedLeaf:
    if isinstance(value, np.str_):
        return _text("numpy.str", str(value).encode("utf-8", "surrogatepass"))
    if isinstance(value, np.bytes_):
        return _text("numpy.bytes", bytes(value))
    if not storable(value.dtype):
        raise _CannotPackError(f"a numpy scalar of type {value.dtype}", "return a plain number")
    return PackedLeaf("scalar", value.dtype.str), (), value.tobytes()


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


Memory = NDArray[np.uint8]


def size_of(leaf: PackedLeaf, shape: tuple[int, ...]) -> int:
    """Return the bytes of a leaf. Raises ValueError for a shape too large for torch and numpy."""
    if math.prod(filter(None, shape)) * leaf.itemsize > MAX_TENSOR_BYTES:
        raise ValueError("a tensor is larger than any file")
    return math.prod(shape) * leaf.itemsize


def value_of(leaf: PackedLeaf, shape: tuple[int, ...], memory: Memory) -> Any:
    """Return the value with these bytes; a tensor or an array shares the memory."""
    if leaf.kind == "tensor":
        if memory.size == 0:
            return torch.empty(shape, dtype=leaf.torch_dtype)
        return torch.from_numpy(memory).view(leaf.torch_dtype).view(shape)
    if leaf.kind == "array":
        return memory.view(leaf.dtype).reshape(shape) if memory.size else np.empty(shape, leaf.dtype)
    if leaf.kind == "scalar":
        return memory.view(leaf.dtype)[0]
    return _FROM_BYTES[leaf.kind](memory.tobytes())


_FROM_BYTES: dict[str, Any] = {
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
class RecordPart:
    """One leaf inside a record: its bytes are `memory[start : start + size]`."""

    leaf: PackedLeaf
    shape: tuple[int, ...]
    start: int
    size: int


def record_parts(schema: Schema, memory: Memory) -> list[RecordPart]:
    """Return where each leaf lies in a record. Raises ValueError if the record contradicts its schema.

    Sizes in the record are checked before anything is allocated by them.
    """
    leaves = schema.leaves
    head = 8 * sum(leaf.ndim for leaf in leaves)
    if head > memory.size:
        raise ValueError("it is shorter than its list of dims")
    dims: Iterator[int] = iter(memory[:head].view("<u8").tolist())
    parts: list[RecordPart] = []
    end = head
    for leaf in leaves:
        shape = tuple(next(dims) for _ in range(leaf.ndim))
        size = size_of(leaf, shape)
        start = _aligned_start(end, size)
        end = start + size
        if end > memory.size:
            raise ValueError("its leaves are larger than the record")
        parts.append(RecordPart(leaf, shape, start, size))
    if end != memory.size:
        raise ValueError("its leaves are smaller than the record")
    return parts


def record_layout(dims: Dims, sizes: list[int]) -> tuple[list[int], int]:
    """Return where leaves of these sizes start in a record, and where the record ends."""
    end = 8 * sum(len(shape) for shape in dims)
    starts = []
    for size in sizes:
        starts.append(_aligned_start(end, size))
        end = starts[-1] + size
    return starts, end


def sample_of(schema: Schema, memory: Memory) -> Any:
    """Return the sample in a record; its tensors and arrays share the record's memory."""
    parts = record_parts(schema, memory)
    return schema.sample(
        [value_of(part.leaf, part.shape, memory[part.start : part.start + part.size]) for part in parts]
    )


def record_checksum(schema: Schema, memory: Memory) -> int:
    """Return the checksum of the sample in a record."""
    parts = record_parts(schema, memory)
    head = dims_bytes(tuple(part.shape for part in parts))
    return checksum(head, [memory[part.start : part.start + part.size] for part in parts])


def _aligned_start(end: int, size: int) -> int:
    alignment = leaf_alignment(size)
    return -(-end // alignment) * alignment
