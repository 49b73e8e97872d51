"""What a file's sample is made of: tensors and numbers in plain containers.

Files that were written alike share one structure, so that a batch of them is one buffer per leaf.
"""

from __future__ import annotations

import functools
import json
import math
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


@dataclass(frozen=True)
class Leaf:
    """A tensor of this type and shape; a number where `dtype` is None."""

    dtype: torch.dtype | None
    shape: tuple[int, ...]
    kind: str
    """t: tensor, i: int, f: float, b: bool."""

    @functools.cached_property
    def size_bytes(self) -> int:
        """Bytes in the file; 0 for a number."""
        return 0 if self.dtype is None else math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Structure:
    """A tree whose leaves are numbered in the order in which `leaves` lists them."""

    leaves: tuple[Leaf, ...]
    tree: Any

    @functools.cached_property
    def tensor_columns(self) -> NDArray[np.int64]:
        """Which of the leaves are tensors."""
        return np.array([at for at, leaf in enumerate(self.leaves) if leaf.dtype], np.int64)

    def sample(self, values: Sequence[Any]) -> Any:
        """Return the sample that has these values as its leaves."""
        return _build(self.tree, iter(values), tuple)

    def batch(self, values: Sequence[Any]) -> Any:
        """Return the batch that has these values as its leaves; tuples become lists, as in torch."""
        return _build(self.tree, iter(values), list)


@functools.lru_cache(maxsize=1024)
def structure_of(text: str) -> Structure | None:
    """Return what a text describes (see native/formats.h); None where torch lacks one of its types."""
    leaves: list[Leaf] = []
    tree = _parse(json.loads(text), leaves)
    if any(leaf.kind == "t" and leaf.dtype is None for leaf in leaves):
        return None
    return Structure(tuple(leaves), tree)


def tensor_structure(dtype: torch.dtype, shape: Sequence[int]) -> Structure:
    """Return the structure of a single tensor."""
    return Structure((Leaf(dtype, tuple(shape), "t"),), "leaf")


def number(leaf: Leaf, column: int) -> int | float | bool:
    """Return the number whose bits a column holds."""
    if leaf.kind == "f":
        return float(struct.unpack("<d", struct.pack("<q", column))[0])
    return bool(column) if leaf.kind == "b" else int(column)


def numbers(leaf: Leaf, columns: NDArray[np.int64]) -> torch.Tensor:
    """Return what default_collate makes of the numbers whose bits the columns hold."""
    if leaf.kind == "f":
        return torch.from_numpy(np.ascontiguousarray(columns).view(np.float64).copy())
    return torch.from_numpy(columns != 0 if leaf.kind == "b" else columns.copy())


_CONTAINERS: dict[str, Callable[[Any], Any]] = {"d": dict, "o": OrderedDict, "l": list, "u": tuple}


def _parse(node: Any, leaves: list[Leaf]) -> Any:
    if isinstance(node, str):
        leaves.append(Leaf(None, (), node))
        return "leaf"
    if node[0] == "t":
        dtype = getattr(torch, node[1], None)
        leaves.append(Leaf(dtype, tuple(node[2]), "t"))
        return "leaf"
    if node[0] in "do":
        return node[0], [(key, _parse(value, leaves)) for key, value in node[1]]
    return node[0], [_parse(value, leaves) for value in node[1]]


def _build(tree: Any, values: Iterator[Any], tuples_as: Callable[[Any], Any]) -> Any:
    if tree == "leaf":
        return next(values)
    kind, items = tree
    make = tuples_as if kind == "u" else _CONTAINERS[kind]
    if kind in "do":
        return make((key, _build(item, values, tuples_as)) for key, item in items)
    return make(_build(item, values, tuples_as) for item in items)
