"""The structure of the sample in a tensor file: tensors and numbers in plain containers.

Files that were written alike share one structure, so that a batch of them is one buffer per leaf. Here a leaf
has a `dtype` only if it is a tensor: a number has no bytes to read, its bits are in the file's table entry.
"""

from __future__ import annotations

import functools
import json
import struct
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unstarve.fixes.samples.dtypes import torch_type
from unstarve.fixes.samples.leaves import Leaf, LeafKind
from unstarve.fixes.samples.structure import Node, Structure, Tree

_NUMBERS = {"i": LeafKind.INT, "f": LeafKind.FLOAT, "b": LeafKind.BOOL}
_CONTAINERS: dict[str, type[Any]] = {"d": dict, "o": OrderedDict, "l": list, "u": tuple}


class FileStructure(Structure[Leaf]):
    """The structure of a file's sample."""

    @functools.cached_property
    def tensor_columns(self) -> NDArray[np.int64]:
        """The numbers of the leaves that are tensors."""
        return np.array([at for at, leaf in enumerate(self.leaves) if leaf.dtype], np.int64)

    @functools.cached_property
    def tensors(self) -> tuple[tuple[torch.dtype, tuple[int, ...]], ...]:
        """Type and shape of each tensor."""
        return tuple((leaf.dtype, leaf.shape) for leaf in self.leaves if leaf.dtype)

    @functools.cached_property
    def tensor_bytes(self) -> NDArray[np.int64]:
        """The bytes of each tensor."""
        return np.array([leaf.row_bytes for leaf in self.leaves if leaf.dtype], np.int64)


@functools.lru_cache(maxsize=1024)
def structure_of(text: str) -> FileStructure | None:
    """Parse a description (see native/formats.h); None if this torch lacks one of its types."""
    leaves: list[Leaf] = []
    tree = _parse(json.loads(text), leaves)
    if any(leaf.kind is LeafKind.TENSOR and leaf.dtype is None for leaf in leaves):
        return None
    return FileStructure(tree, tuple(leaves))


def tensor_structure(dtype: torch.dtype, shape: Sequence[int]) -> FileStructure:
    """Return the structure of a single tensor."""
    return FileStructure(0, (Leaf(LeafKind.TENSOR, dtype, tuple(shape)),))


def number(leaf: Leaf, column: int) -> int | float | bool:
    """Return the number whose bits a column holds."""
    if leaf.kind is LeafKind.FLOAT:
        return float(struct.unpack("<d", struct.pack("<q", column))[0])
    return bool(column) if leaf.kind is LeafKind.BOOL else int(column)


def numbers(leaf: Leaf, columns: NDArray[np.int64]) -> torch.Tensor:
    """Return what `default_collate` makes of the numbers whose bits the columns hold."""
    if leaf.kind is LeafKind.FLOAT:
        return torch.from_numpy(np.ascontiguousarray(columns).view(np.float64).copy())
    return torch.from_numpy(columns != 0 if leaf.kind is LeafKind.BOOL else columns.copy())


def _parse(node: Any, leaves: list[Leaf]) -> Tree:
    if isinstance(node, str):
        leaves.append(Leaf(_NUMBERS[node]))
    elif node[0] == "t":
        leaves.append(Leaf(LeafKind.TENSOR, torch_type(node[1]), tuple(node[2])))
    elif node[0] in "do":
        keys = tuple(key for key, _ in node[1])
        return Node(_CONTAINERS[node[0]], keys, tuple(_parse(value, leaves) for _, value in node[1]))
    else:
        return Node(_CONTAINERS[node[0]], None, tuple(_parse(value, leaves) for value in node[1]))
    return len(leaves) - 1
