"""A sample → its schema, shapes and bytes, ready to be written."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from unstarve.errors import UsageError
from unstarve.fixes.samples.packed_schema import MAX_DEPTH, Branch, Leaf, Tree, storable, tensor_type

Dims: TypeAlias = tuple[tuple[int, ...], ...]
Payload: TypeAlias = "bytes | memoryview"

_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Encoded:
    """A sample as it is written: of each leaf, in order, its dims and its bytes."""

    tree: Tree
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
    leaves: list[tuple[tuple[int, ...], Payload]] = []
    tree = _take_apart(sample, "", 0, leaves)
    dims = tuple(dims for dims, _ in leaves)
    payloads = tuple(payload for _, payload in leaves)
    return Encoded(tree, dims, payloads, checksum(dims_bytes(dims), payloads))


def dims_bytes(dims: Dims) -> bytes:
    """The dims of all leaves, as a record starts with them."""
    return np.array([size for shape in dims for size in shape], "<u8").tobytes()


def checksum(head: bytes, payloads: Sequence[Any]) -> int:
    """CRC-32 of a sample's dims and payloads."""
    crc = zlib.crc32(head)
    for payload in payloads:
        crc = zlib.crc32(payload, crc)
    return crc


_Leaves: TypeAlias = list[tuple[tuple[int, ...], Payload]]


def _take_apart(value: Any, where: str, depth: int, leaves: _Leaves) -> Tree:
    kind = type(value)
    if kind in (tuple, list, dict) and depth >= MAX_DEPTH:
        raise _cannot(where[:40] + "…", f"nested more than {MAX_DEPTH} deep", "return a flatter sample")
    if kind is tuple or kind is list:
        items = [_take_apart(item, f"{where}[{i}]", depth + 1, leaves) for i, item in enumerate(value)]
        return Branch(kind.__name__, (), tuple(items))
    if kind is dict:
        for key in value:
            if type(key) not in (str, int):
                raise _cannot(where, f"a dict with a key of type {type(key).__name__}", "use str or int keys")
        items = [_take_apart(item, f"{where}[{key!r}]", depth + 1, leaves) for key, item in value.items()]
        return Branch("dict", tuple(value), tuple(items))
    leaf, dims, payload = _leaf_of(value, where)
    leaves.append((dims, payload))
    return leaf


def _leaf_of(value: Any, where: str) -> tuple[Leaf, tuple[int, ...], Payload]:
    if isinstance(value, torch.Tensor):
        return _tensor(value, where)
    if isinstance(value, np.generic):
        return _numpy_scalar(value, where)
    if type(value) in (np.ndarray, np.memmap):
        return _array(value, where)
    if type(value) is int and value not in _INT64:
        if abs(value) >= 10**4000:  # Python refuses to read longer ones
            raise _cannot(where, "an int of over 4000 digits", "return bytes")
        return _text("bigint", str(value).encode())
    plain = _PLAIN.get(type(value))
    if plain is not None:
        kind, to_bytes = plain
        return Leaf(kind), (), to_bytes(value)
    if type(value) is str:
        return _text("str", value.encode("utf-8", "surrogatepass"))
    if type(value) is bytes:
        return _text("bytes", value)
    remedy = "return tensors, arrays, numbers, text, bytes, or tuples, lists and dicts of them"
    raise _cannot(where, f"of type {_type_name(value)}", remedy)


_PLAIN: dict[type, tuple[str, Callable[[Any], bytes]]] = {
    type(None): ("none", lambda value: b""),
    bool: ("bool", lambda value: b"\1" if value else b"\0"),
    int: ("int", lambda value: value.to_bytes(8, "little", signed=True)),
    float: ("float", lambda value: np.float64(value).tobytes()),
    complex: ("complex", lambda value: np.complex128(value).tobytes()),
}


def _text(kind: str, payload: bytes) -> tuple[Leaf, tuple[int, ...], Payload]:
    return Leaf(kind, ndim=1), (len(payload),), payload


def _tensor(value: torch.Tensor, where: str) -> tuple[Leaf, tuple[int, ...], Payload]:
    if type(value) is not torch.Tensor:
        what = f"of type {_type_name(value)}, which would come back as a plain tensor"
        raise _cannot(where, what, "return value.as_subclass(torch.Tensor)")
    if not value.is_cpu:
        raise _cannot(where, f"a tensor on {value.device}", "return value.cpu()")
    if value.requires_grad:
        raise _cannot(where, "a tensor that requires gradients", "return value.detach()")
    if value.layout != torch.strided or value.is_quantized or value.is_nested:
        raise _cannot(
            where, f"a tensor of layout {value.layout} and type {value.dtype}", "return a dense tensor"
        )
    name = str(value.dtype).removeprefix("torch.")
    try:
        tensor_type(name)
    except ValueError:
        raise _cannot(where, f"a tensor of type {value.dtype}", "return another type") from None
    flat = value.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    return Leaf("tensor", name, value.ndim), tuple(value.shape), flat.numpy().data


def _array(value: np.ndarray[Any, Any], where: str) -> tuple[Leaf, tuple[int, ...], Payload]:
    if not storable(value.dtype):
        raise _cannot(
            where, f"an array of type {value.dtype}", "return numbers, dates or text in plain arrays"
        )
    flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    return Leaf("array", value.dtype.str, value.ndim), value.shape, flat.data


def _numpy_scalar(value: np.generic, where: str) -> tuple[Leaf, tuple[int, ...], Payload]:
    if isinstance(value, np.str_):
        return _text("numpy.str", str(value).encode("utf-8", "surrogatepass"))
    if isinstance(value, np.bytes_):
        return _text("numpy.bytes", bytes(value))
    if not storable(value.dtype):
        raise _cannot(where, f"a numpy scalar of type {value.dtype}", "return a plain number")
    return Leaf("scalar", value.dtype.str), (), value.tobytes()


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _cannot(where: str, what: str, remedy: str) -> UsageError:
    return UsageError(f"cannot be packed: {where or 'it'} is {what}; {remedy}")
