"""The values in a sample: which of them fit rows of one tensor, and how to write and read such rows.

Numbers, tensors and arrays of one type and shape become rows. Text, and anything else that can be pickled, is
stored one value at a time.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from unstarve.errors import CacheError
from unstarve.fixes.samples.dtypes import INTEGER_OF_SIZE, torch_types_by_numpy

Array: TypeAlias = NDArray[Any]


class LeafKind(enum.Enum):
    """The Python type of a value, which it has again when it is read."""

    TENSOR = "tensor"
    ARRAY = "numpy array"
    SCALAR = "numpy scalar"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    TEXT = "text"
    OBJECT = "object"
    RAW = "bytes"


@dataclass(frozen=True)
class Leaf:
    """One value of every sample. `dtype` is None if the value is not stored in rows."""

    kind: LeafKind
    dtype: torch.dtype | None = None
    shape: tuple[int, ...] = ()
    subclass: type[torch.Tensor] | None = None

    @property
    def row_bytes(self) -> int:
        """Bytes of one row; 0 if the value is not stored in rows."""
        return 0 if self.dtype is None else math.prod(self.shape) * self.dtype.itemsize

    @property
    def collates(self) -> bool:
        """Whether it is known what `default_collate` makes of such values."""
        return self.kind not in (LeafKind.OBJECT, LeafKind.RAW) and self.subclass is None

    def __str__(self) -> str:
        if self.dtype is None or self.kind in (LeafKind.INT, LeafKind.FLOAT, LeafKind.BOOL):
            return self.kind.value
        shape = "×".join(map(str, self.shape))
        return f"{self.kind.value} of {str(self.dtype).removeprefix('torch.')}{' ' + shape if shape else ''}"


@dataclass(frozen=True)
class Raw:
    """Bytes (flat uint8) that are stored as they are. Reading them gives a view of the store, not a copy."""

    data: torch.Tensor


_TEXT = Leaf(LeafKind.TEXT)
OBJECT = Leaf(LeafKind.OBJECT)
RAW = Leaf(LeafKind.RAW)
_NUMBERS = {
    int: Leaf(LeafKind.INT, torch.int64),
    float: Leaf(LeafKind.FLOAT, torch.float64),
    bool: Leaf(LeafKind.BOOL, torch.bool),
    str: _TEXT,
    bytes: _TEXT,
}
_INT64 = range(-(2**63), 2**63)

_TORCH_TYPES = torch_types_by_numpy()
_NUMPY_TYPES = frozenset(_TORCH_TYPES.values())


def describe(value: Any) -> Leaf:
    """Return how a value is stored. Raises CacheError for a tensor that cannot be cached."""
    kind = type(value)
    if kind is torch.Tensor:
        return describe_tensor(value)
    number = _NUMBERS.get(kind)
    if number is not None:
        return number if kind is not int or value in _INT64 else OBJECT
    if kind is Raw:
        return RAW
    if kind is np.ndarray or kind is np.memmap:
        dtype = _TORCH_TYPES.get(value.dtype)
        return OBJECT if dtype is None else Leaf(LeafKind.ARRAY, dtype, value.shape)
    if isinstance(value, np.generic):
        dtype = _TORCH_TYPES.get(value.dtype)
        same = dtype is not None and kind is value.dtype.type
        return Leaf(LeafKind.SCALAR, dtype) if same else OBJECT
    if isinstance(value, torch.Tensor):
        plain = not vars(value) and not isinstance(value, torch.nn.Parameter)
        return describe_tensor(value, kind) if plain else OBJECT
    return OBJECT


def describe_tensor(value: torch.Tensor, subclass: type[torch.Tensor] | None = None) -> Leaf:
    """Return how a tensor is stored. Raises CacheError if it cannot be cached."""
    if not value.is_cpu:
        raise CacheError(
            f"a tensor on {value.device} cannot be cached: let the dataset return tensors on the CPU"
        )
    if value.requires_grad:
        raise CacheError("a tensor that requires gradients cannot be cached: detach() it in the dataset")
    if value.layout is not torch.strided or value.is_quantized or value.is_nested:
        return OBJECT
    return Leaf(LeafKind.TENSOR, value.dtype, tuple(value.shape), subclass)


def fitter(leaf: Leaf) -> Callable[[Any], bool]:
    """Return a fast test of whether `describe(value) == leaf`."""
    if leaf.kind is LeafKind.OBJECT:
        return lambda value: True
    if leaf.kind is not LeafKind.TENSOR or leaf.subclass is not None:
        return lambda value: describe(value) == leaf
    dtype, shape = leaf.dtype, leaf.shape

    def fits(value: Any) -> bool:
        if type(value) is not torch.Tensor or value.dtype is not dtype or value.shape != shape:
            return False
        return (not value.requires_grad and value.is_cpu) or describe(value) == leaf

    return fits


def as_array(tensor: torch.Tensor) -> Array:
    """Return a numpy view of a tensor; types that numpy lacks are viewed as integers of the same size."""
    if tensor.dtype in _NUMPY_TYPES:
        return tensor.numpy()
    return tensor.view(getattr(torch, INTEGER_OF_SIZE[tensor.dtype.itemsize])).numpy()


def writer(leaf: Leaf, column: torch.Tensor) -> Callable[[int, Any], Any]:
    """Return a function that writes a value into a row of the column."""
    if leaf.kind is LeafKind.TENSOR:
        return lambda row, value: column[row].copy_(value)
    return as_array(column).__setitem__


def large_writer(
    leaf: Leaf, column: torch.Tensor, write: Callable[[int, memoryview], Any]
) -> Callable[[int, Any], Any]:
    """Return the same for rows that `write` takes as bytes, given the row; others go into the column."""
    into_column, dtype = writer(leaf, column), as_array(column).dtype

    def write_row(row: int, value: Any) -> None:
        if leaf.kind is LeafKind.TENSOR:
            plain = leaf.subclass is None and not (value.is_conj() or value.is_neg())
            array = as_array(value) if plain else None
        else:
            array = value if type(value) is np.ndarray else None
        if array is None or array.dtype != dtype or not array.flags.c_contiguous:
            into_column(row, value)
        else:
            write(row, array.reshape(-1).view(np.uint8).data)

    return write_row


def reader(leaf: Leaf, column: torch.Tensor) -> Callable[[int], Any]:
    """Return a function that reads a row of the column as the value that was written, as a copy."""
    array = as_array(column)
    if leaf.kind in (LeafKind.INT, LeafKind.FLOAT, LeafKind.BOOL):
        return array.item
    if leaf.kind is LeafKind.SCALAR:
        return array.__getitem__
    if leaf.kind is LeafKind.ARRAY:
        return lambda row: array[row, ...].copy()
    if leaf.subclass is not None:
        subclass = leaf.subclass
        return lambda row: column[row].clone().as_subclass(subclass)
    if leaf.shape and leaf.dtype in _NUMPY_TYPES:  # half the time of indexing and cloning in torch
        return lambda row: torch.from_numpy(array[row].copy())
    return lambda row: column[row].clone()


def viewer(leaf: Leaf, batch: Any) -> Callable[[int], Any]:
    """Return a function that gives the i-th value of a batch as the sample had it, as a view."""
    if leaf.kind in (LeafKind.TENSOR, LeafKind.TEXT):
        return batch.__getitem__  # type: ignore[no-any-return] # a tensor, a tuple or a list
    if leaf.kind is LeafKind.ARRAY:
        array = as_array(batch)
        return lambda row: array[row, ...]
    return reader(leaf, batch)
