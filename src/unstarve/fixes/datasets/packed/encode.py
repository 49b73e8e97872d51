"""A sample → its schema, shapes and bytes, ready to be written."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from unstarve.errors import UsageError
from unstarve.fixes.datasets.packed.packed_schema import MAX_DEPTH, PackedLeaf, Schema, storable, tensor_type
from unstarve.fixes.samples.structure import Node, Structure, Tree, nodes_of, take_apart

Dims: TypeAlias = tuple[tuple[int, ...], ...]
Payload: TypeAlias = "bytes | memoryview"

_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Encoded:
    """A sample as it is written: of each leaf, in order, its dims and its bytes."""

    schema: Schema
    dims: Dims
    payloads: tuple[Payload, ...]
    checksum: int

    @property
    def size_bytes(self) -> int:
        """All payloads together."""
        return sum(len(payload) for payload in self.payloads)


def encode(sample: Any) -> Encoded:
    """Take a sample apart. The payloads share memory with its arrays and tensors where they can.

    Raises UsageError for what cannot be packed, and says where in the sample it is.
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
    """The dims of all leaves, as a record starts with them."""
    return np.array([size for shape in dims for size in shape], "<u8").tobytes()


def checksum(head: bytes, payloads: Sequence[Any]) -> int:
    """CRC-32 of a sample's dims and payloads."""
    crc = zlib.crc32(head)
    for payload in payloads:
        crc = zlib.crc32(payload, crc)
    return crc


class _CannotPackError(Exception):
    """What a value is, and what to return instead."""

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
    for path, part in nodes_of(tree):
        for key in part.keys or () if isinstance(part, Node) else ():
            if type(key) not in (str, int):
                what = f"{path or 'it'} is a dict with a key of type {type(key).__name__}"
                raise UsageError(f"cannot be packed: {what}; use str or int keys")


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
    plain = _NUMBERS.get(type(value))
    if plain is not None:
        kind, to_bytes = plain
        return PackedLeaf(kind), (), to_bytes(value)
    if type(value) is str:
        return _text("str", value.encode("utf-8", "surrogatepass"))
    if type(value) is bytes:
        return _text("bytes", value)
    remedy = "return tensors, arrays, numbers, text, bytes, or tuples, lists and dicts of them"
    raise _CannotPackError(f"of type {_type_name(value)}", remedy)


_NUMBERS: dict[type, tuple[str, Callable[[Any], bytes]]] = {
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
