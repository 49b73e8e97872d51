"""What may be cached: tensors and arrays, used where they lie, or a dataset with samples by index."""

from __future__ import annotations

import mmap
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, TensorDataset

from unstarve.errors import CacheError, UsageError
from unstarve.fixes.memory.store.layout import Layout, may_batch
from unstarve.fixes.memory.store.rows import Rows
from unstarve.fixes.samples.leaves import Array, Kind, Leaf, describe, describe_tensor
from unstarve.fixes.samples.structure import Tree, is_named_tuple, take_apart
from unstarve.words import size as in_words

# A list of this many tensors is more likely one tensor per sample than one per field.
_MOST_LISTED_COLUMNS = 16


class Columns:
    """Tensors and arrays with one row per sample, side by side in a structure. Nothing is copied."""

    def __init__(self, tree: Tree, arrays: list[Any]) -> None:
        self._tree = tree
        self._arrays = arrays
        tensors = [_as_tensor(array) for array in arrays]
        lengths = {len(tensor) for tensor in tensors}
        if len(lengths) > 1:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
            raise UsageError(f"tensors and arrays side by side need one length, but have the shapes {shapes}")
        self.samples = lengths.pop()
        leaves = [_leaf_of(array, tensor) for array, tensor in zip(arrays, tensors, strict=True)]
        self.layout = Layout(tree, tuple(leaves), batchable=may_batch(tree, leaves))
        self.rows = Rows(leaves, tensors)

    @property
    def source(self) -> Any:
        """The tensors and arrays, as they were given."""
        return self.layout.sample(self._arrays)

    def get(self, index: int) -> Any:
        """Return a sample."""
        return self.layout.sample(self.rows.values(index))

    def all_rows(self) -> bool:
        """Whether every sample is there, and is like the others."""
        return True

    def bring_rows(self, indices: list[int]) -> bool:
        """Whether these samples are there, and are like the others."""
        return True

    def where(self) -> str:
        """Say where the data is, and how much of it there is."""
        size_bytes = sum(column.nbytes for column in self.rows.columns)
        return f"{in_words(size_bytes)} where the data lies"

    def __reduce__(self) -> Any:
        # torch hands a tensor to its workers in shared memory; a file that is mapped is mapped there again.
        pairs = zip(self._arrays, self.rows.columns, strict=True)
        return _columns, (
            self._tree,
            [_reopening(array) or _handing(array, column) for array, column in pairs],
        )

    def __deepcopy__(self, memo: Any) -> Columns:
        return self


def columns_in(data: Any) -> Columns | None:
    """Return the columns that `data` consists of, or None where it is a dataset.

    Raises UsageError for what is neither.
    """
    if isinstance(data, TensorDataset):
        data = data.tensors
    if isinstance(data, list) and not all(map(_is_column, data)):
        return None
    if isinstance(data, list) and len(data) > _MOST_LISTED_COLUMNS:
        raise UsageError(
            f"a list of {len(data)} tensors may be {len(data)} samples or {len(data)} fields: pass"
            " torch.stack(data) for samples of one shape, or tuple(data) for fields"
        )
    if not _is_column(data) and not isinstance(data, (tuple, list, Mapping)):
        return None
    tree, arrays = take_apart(data, _container_kind)
    if not arrays:
        raise UsageError("there is nothing to cache: no tensor and no array")
    return Columns(tree, arrays)


def check_dataset(data: Any) -> int:
    """Return the number of samples of a dataset. Raises UsageError where it has none by index."""
    name = type(data).__name__
    if isinstance(data, IterableDataset):
        raise UsageError(
            f"{name} is a stream, which has no samples by index to cache: use a map-style dataset"
        )
    if not hasattr(data, "__getitem__"):
        raise UsageError(
            f"{name} cannot be cached: it is no tensor, no array and no dataset with samples by index"
        )
    try:
        return len(data)
    except (TypeError, NotImplementedError) as error:
        raise UsageError(f"{name} cannot be cached without a length: give it a __len__") from error


def _is_column(data: Any) -> bool:
    return isinstance(data, torch.Tensor) or (isinstance(data, np.ndarray) and _has_torch_type(data))


def _has_torch_type(array: Array) -> bool:
    return describe(np.asarray(array)).dtype is not None


def _container_kind(data: Any, depth: int) -> type[Any] | None:
    if _is_column(data):
        return None
    if isinstance(data, Mapping):
        return dict
    if isinstance(data, (tuple, list)):
        return type(data) if is_named_tuple(type(data)) else tuple if isinstance(data, tuple) else list
    what = f"an array of {data.dtype}" if isinstance(data, np.ndarray) else type(data).__name__
    raise UsageError(f"only tensors and numeric arrays can be cached side by side, not {what}")


def _as_tensor(data: Any) -> torch.Tensor:
    if isinstance(data, torch.Tensor):
        if describe_tensor(data).dtype is None:
            raise CacheError(
                f"a tensor of layout {data.layout} cannot be cached: use to_dense() or dequantize()"
            )
        tensor = data.as_subclass(torch.Tensor)
    else:
        with warnings.catch_warnings():  # of arrays that may not be written to: nobody does
            warnings.simplefilter("ignore")
            tensor = torch.from_numpy(np.ascontiguousarray(data) if data.ndim else data)
    if tensor.ndim == 0:
        raise UsageError("a tensor or array without dimensions has no samples to cache")
    return tensor.contiguous()


def _leaf_of(array: Any, tensor: torch.Tensor) -> Leaf:
    if isinstance(array, torch.Tensor):
        kind = Kind.TENSOR
    else:
        kind = Kind.ARRAY if tensor.ndim > 1 else Kind.SCALAR
    return Leaf(kind, tensor.dtype, tuple(tensor.shape[1:]))


def _reopening(array: Any) -> Any:
    """Return how to map an array's file again, where it is all that was mapped and not a part of it."""
    base: object = getattr(array, "base", None)
    if type(array) is not np.memmap or not isinstance(base, mmap.mmap) or not array.filename:
        return None
    order = "C" if array.flags.c_contiguous else "F"
    return np.memmap, (str(array.filename), array.dtype, "r", array.offset, array.shape, order)


def _handing(array: Any, column: torch.Tensor) -> Any:
    """Return how to make of a column what was given."""
    return (torch.Tensor.numpy if isinstance(array, np.ndarray) else torch.Tensor.detach), (column,)


def _columns(tree: Tree, recipes: list[tuple[Any, tuple[Any, ...]]]) -> Columns:
    return Columns(tree, [make(*arguments) for make, arguments in recipes])
