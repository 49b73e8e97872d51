"""What a sample is made of, apart from its values: a tree of tuples, lists and dicts around leaves.

As JSON, a branch is an object and a leaf a list::

    {"tuple": [["tensor", "float32", 3], ["int"]]}
    {"dict": [["image", ["array", "|u1", 3]], ["name", ["str"]]]}

A leaf names its kind; a tensor, array or numpy scalar also its type, and the first two their number of
dimensions. Shapes belong to the samples.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

_TENSOR_TYPES = frozenset((
    "bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "bfloat16",
    "float32", "float64", "complex32", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2",
    "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
))  # fmt: skip
_PLAIN = {"none": 0, "bool": 1, "int": 8, "float": 8, "complex": 16}
_TEXT = frozenset(("str", "bytes", "numpy.str", "numpy.bytes", "bigint"))
_BRANCHES = frozenset(("tuple", "list", "dict"))
MAX_DEPTH = 64
_MAX_DIMENSIONS = 64

Key: TypeAlias = str | int


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value. `dtype` is a tensor's type by torch's name, an array's by numpy's, else empty.

    Kinds: tensor; array, scalar (numpy's); none, bool, int (64 bits), float, complex; and those whose length
    varies: str, bytes, numpy.str, numpy.bytes, bigint.
    """

    kind: str
    dtype: str = ""
    ndim: int = 0

    @property
    def has_fixed_size(self) -> bool:
        """Whether samples of the same shape have the same number of bytes here."""
        return self.kind not in _TEXT

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return _itemsize(self.kind, self.dtype)

    @property
    def torch_dtype(self) -> torch.dtype:
        """Type of a tensor."""
        return tensor_type(self.dtype)


@dataclass(frozen=True, slots=True)
class Branch:
    """A tuple, a list, or a dict, which has `keys`."""

    kind: str
    keys: tuple[Key, ...]
    children: tuple[Tree, ...]


Tree: TypeAlias = Leaf | Branch


def tensor_type(name: str) -> torch.dtype:
    """torch's type of this name; ValueError where this torch has none that can be stored."""
    found = getattr(torch, name, None) if name in _TENSOR_TYPES else None
    if not isinstance(found, torch.dtype):
        raise ValueError(f"torch {torch.__version__} has no type {name!r} that can be packed")
    return found


@functools.cache
def _itemsize(kind: str, dtype: str) -> int:
    if kind == "tensor":
        return tensor_type(dtype).itemsize
    if kind in ("array", "scalar"):
        return np.dtype(dtype).itemsize
    return _PLAIN.get(kind, 1)


def leaves_of(tree: Tree) -> Iterator[Leaf]:
    """All leaves in the order they are stored."""
    if isinstance(tree, Leaf):
        yield tree
    else:
        for child in tree.children:
            yield from leaves_of(child)


def build(tree: Tree, values: Iterator[Any]) -> Any:
    """Put values back into the tree, in the order of its leaves."""
    if isinstance(tree, Leaf):
        return next(values)
    children = [build(child, values) for child in tree.children]
    if tree.kind == "dict":
        return dict(zip(tree.keys, children, strict=True))
    return tuple(children) if tree.kind == "tuple" else children


def build_collated(tree: Tree, values: Iterator[Any]) -> Any:
    """The same around finished batches: `default_collate` makes lists of tuples."""
    if isinstance(tree, Leaf):
        return next(values)
    children = [build_collated(child, values) for child in tree.children]
    return dict(zip(tree.keys, children, strict=True)) if tree.kind == "dict" else children


def to_json(tree: Tree) -> Any:
    """As written into an index."""
    if isinstance(tree, Leaf):
        if tree.kind in ("tensor", "array"):
            return [tree.kind, tree.dtype, tree.ndim]
        return [tree.kind, tree.dtype] if tree.kind == "scalar" else [tree.kind]
    children = [to_json(child) for child in tree.children]
    if tree.kind == "dict":
        return {"dict": [[key, child] for key, child in zip(tree.keys, children, strict=True)]}
    return {tree.kind: children}


def from_json(value: Any, depth: int = 0) -> Tree:
    """Read a tree that anyone may have written; ValueError says what is wrong with it."""
    if depth > MAX_DEPTH:
        raise ValueError("a sample is nested too deeply")
    match value:
        case ["tensor" | "array" as kind, str(dtype), int(ndim)] if 0 <= ndim <= _MAX_DIMENSIONS:
            return _checked(Leaf(kind, dtype, ndim))
        case ["scalar", str(dtype)]:
            return _checked(Leaf("scalar", dtype))
        case [str(kind)] if kind in _PLAIN:
            return Leaf(kind)
        case [str(kind)] if kind in _TEXT:
            return Leaf(kind, ndim=1)
        case {"dict": list(items), **rest} if not rest:
            return _dict_from_json(items, depth)
        case {"tuple": list(items), **rest} if not rest:
            return Branch("tuple", (), tuple(from_json(item, depth + 1) for item in items))
        case {"list": list(items), **rest} if not rest:
            return Branch("list", (), tuple(from_json(item, depth + 1) for item in items))
    raise ValueError(f"no sample has a part {str(value)[:60]}")


def _dict_from_json(items: list[Any], depth: int) -> Branch:
    keys: list[Key] = []
    children: list[Tree] = []
    for item in items:
        match item:
            case [str() | int() as key, child] if type(key) in (str, int):
                keys.append(key)
                children.append(from_json(child, depth + 1))
            case _:
                raise ValueError(f"no dict has an item {str(item)[:60]}")
    if len(set(keys)) != len(keys):
        raise ValueError("a dict has the same key twice")
    return Branch("dict", tuple(keys), tuple(children))


def _checked(leaf: Leaf) -> Leaf:
    if leaf.kind == "tensor":
        tensor_type(leaf.dtype)
        return leaf
    try:
        dtype = np.dtype(leaf.dtype)
    except (TypeError, ValueError, SyntaxError) as error:  # numpy reads little languages in such strings
        raise ValueError(f"numpy has no type {leaf.dtype[:60]!r}") from error
    if not storable(dtype) or dtype.str != leaf.dtype:
        raise ValueError(f"numpy's type {leaf.dtype[:60]!r} cannot be packed")
    return leaf


def storable(dtype: np.dtype[Any]) -> bool:
    """Whether numpy's type is numbers, dates or text whose bytes mean the same in another process."""
    return dtype.kind in "biufcmMSU" and dtype.itemsize > 0
