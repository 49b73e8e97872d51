"""The schema of a packed sample: its structure, and type and number of dimensions of each value.

As JSON, a container is an object and a leaf a list::

    {"tuple": [["tensor", "float32", 3], ["int"]]}
    {"dict": [["image", ["array", "|u1", 3]], ["name", ["str"]]]}

A leaf names its kind; a tensor, array or numpy scalar also its type, and the first two their number of
dimensions. Shapes are stored with each sample. This JSON is part of the file format.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from unstarve.fixes.samples.dtypes import torch_type
from unstarve.fixes.samples.structure import Node, Structure, Tree

_FIXED_SIZES = {"none": 0, "bool": 1, "int": 8, "float": 8, "complex": 16}
_VARYING = frozenset(("str", "bytes", "numpy.str", "numpy.bytes", "bigint"))
MAX_DEPTH = 64
_MAX_DIMENSIONS = 64


@dataclass(frozen=True, slots=True)
class PackedLeaf:
    """One value. `dtype` is torch's name of a tensor's type, numpy's of an array's, else empty.

    Kinds: tensor; array, scalar (numpy's); none, bool, int (64 bits), float, complex; and those whose length
    varies: str, bytes, numpy.str, numpy.bytes, bigint.
    """

    kind: str
    dtype: str = ""
    ndim: int = 0

    @property
    def has_fixed_size(self) -> bool:
        """Whether samples of the same shape have the same number of bytes here."""
        return self.kind not in _VARYING

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return _itemsize(self.kind, self.dtype)

    @property
    def torch_dtype(self) -> torch.dtype:
        """Type of a tensor."""
        return tensor_type(self.dtype)


Schema: TypeAlias = Structure[PackedLeaf]


def tensor_type(name: str) -> torch.dtype:
    """Return torch's type of this name. Raises ValueError if it cannot be stored or this torch lacks it."""
    found = torch_type(name)
    if found is None:
        raise ValueError(f"torch {torch.__version__} has no type {name!r} that can be packed")
    return found


@functools.cache
def _itemsize(kind: str, dtype: str) -> int:
    if kind == "tensor":
        return tensor_type(dtype).itemsize
    if kind in ("array", "scalar"):
        return np.dtype(dtype).itemsize
    return _FIXED_SIZES.get(kind, 1)


def to_json(schema: Schema) -> Any:
    """Return the schema as it is written into an index."""
    return _tree_to_json(schema.tree, schema.leaves)


def _tree_to_json(tree: Tree, leaves: tuple[PackedLeaf, ...]) -> Any:
    if isinstance(tree, int):
        leaf = leaves[tree]
        if leaf.kind in ("tensor", "array"):
            return [leaf.kind, leaf.dtype, leaf.ndim]
        return [leaf.kind, leaf.dtype] if leaf.kind == "scalar" else [leaf.kind]
    children = [_tree_to_json(child, leaves) for child in tree.children]
    if tree.keys is not None:
        return {"dict": [[key, child] for key, child in zip(tree.keys, children, strict=True)]}
    return {tree.kind.__name__: children}


def from_json(value: Any) -> Schema:
    """Read a schema that anyone may have written. Raises ValueError, which says what is wrong with it."""
    leaves: list[PackedLeaf] = []
    tree = _tree_from_json(value, 0, leaves)
    return Structure(tree, tuple(leaves))


def _tree_from_json(value: Any, depth: int, leaves: list[PackedLeaf]) -> Tree:
    if depth > MAX_DEPTH:
        raise ValueError("a sample is nested too deeply")
    match value:
        case {"dict": list(items), **rest} if not rest:
            return _dict_from_json(items, depth, leaves)
        case {"tuple": list(items), **rest} if not rest:
            return Node(tuple, None, tuple(_tree_from_json(item, depth + 1, leaves) for item in items))
        case {"list": list(items), **rest} if not rest:
            return Node(list, None, tuple(_tree_from_json(item, depth + 1, leaves) for item in items))
    leaves.append(_leaf_from_json(value))
    return len(leaves) - 1


def _leaf_from_json(value: Any) -> PackedLeaf:
    match value:
        case ["tensor" | "array" as kind, str(dtype), int(ndim)] if 0 <= ndim <= _MAX_DIMENSIONS:
            return _checked(PackedLeaf(kind, dtype, ndim))
        case ["scalar", str(dtype)]:
            return _checked(PackedLeaf("scalar", dtype))
        case [str(kind)] if kind in _FIXED_SIZES:
            return PackedLeaf(kind)
        case [str(kind)] if kind in _VARYING:
            return PackedLeaf(kind, ndim=1)
    raise ValueError(f"a schema cannot contain {str(value)[:60]}")


def _dict_from_json(items: list[Any], depth: int, leaves: list[PackedLeaf]) -> Node:
    keys: list[str | int] = []
    children: list[Tree] = []
    for item in items:
        match item:
            case [str() | int() as key, child] if type(key) in (str, int):
                keys.append(key)
                children.append(_tree_from_json(child, depth + 1, leaves))
            case _:
                raise ValueError(f"a dict in a schema cannot contain {str(item)[:60]}")
    if len(set(keys)) != len(keys):
        raise ValueError("a dict has the same key twice")
    return Node(dict, tuple(keys), tuple(children))


def _checked(leaf: PackedLeaf) -> PackedLeaf:
    if leaf.kind == "tensor":
        tensor_type(leaf.dtype)
        return leaf
    try:
        dtype = np.dtype(leaf.dtype)
    except (TypeError, ValueError, SyntaxError) as error:  # numpy parses a small language in such strings
        raise ValueError(f"numpy has no type {leaf.dtype[:60]!r}") from error
    if not storable(dtype) or dtype.str != leaf.dtype:
        raise ValueError(f"numpy's type {leaf.dtype[:60]!r} cannot be packed")
    return leaf


def storable(dtype: np.dtype[Any]) -> bool:
    """Whether a numpy type is numbers, dates or text whose bytes mean the same in another process."""
    return dtype.kind in "biufcmMSU" and dtype.itemsize > 0
