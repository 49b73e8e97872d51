"""What a user may cache: tensors and arrays, which are used in place, or a map-style dataset."""

from __future__ import annotations

import mmap
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, TensorDataset

from unstarve.errors import CacheError, UsageError
from unstarve.fixes.memory.store.sample_layout import Rows, SampleLayout, may_batch
from unstarve.fixes.samples.leaves import Array, Leaf, LeafKind, describe, describe_tensor
from unstarve.fixes.samples.structure import Tree, is_named_tuple, take_apart
from unstarve.words import size as in_words

# A longer list of tensors more likely has one tensor per sample than one per field.
_MAX_LISTED_COLUMNS = 16


class GivenColumns:
    """Tensors and arrays with one row per sample, used in place. Has the interface of `Copies`."""

    def __init__(self, tree: Tree, arrays: list[Any]) -> None:
        self._tree = tree
        self._arrays = arrays
        tensors = [_as_tensor(array) for array in arrays]
        lengths = {len(tensor) for tensor in tensors}
        if len(lengths) > 1:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
            raise UsageError(f"all tensors and arrays must have the same length, got shapes {shapes}")
        self.samples = lengths.pop()
        leaves = [_leaf_of(array, tensor) for array, tensor in zip(arrays, tensors, strict=True)]
        self.layout = SampleLayout(tree, tuple(leaves), batchable=may_batch(tree, leaves))
        self.rows = Rows(leaves, tensors)

    @property
    def source(self) -> Any:
        """The tensors and arrays as the user passed them."""
        return self.layout.sample(self._arrays)

    def get(self, index: int) -> Any:
        """Return a sample."""
        return self.layout.sample(self.rows.values(index))

    def all_rows(self) -> bool:
        """Whether every sample is a row: always."""
        return True

    def bring_rows(self, indices: list[int]) -> bool:
        """Whether these samples are rows: always."""
        return True

    def where(self) -> str:
        """Say where the data is and how large it is."""
        size_bytes = sum(column.nbytes for column in self.rows.columns)
        return f"{in_words(size_bytes)}, used in place"

    def __reduce__(self) -> Any:
        # torch sends tensors to workers in shared memory; a memory-mapped file is mapped again.
        pairs = zip(self._arrays, self.rows.columns, strict=True)
        return _columns, (
            self._tree,
            [_reopening(array) or _handing(array, column) for array, column in pairs],
        )

    def __deepcopy__(self, memo: Any) -> GivenColumns:
        return self


def columns_in(data: Any) -> GivenColumns | None:
    """Return the columns that `data` consists of; None if it is a dataset.

    Raises UsageError if it is neither.
    """
    if isinstance(data, TensorDataset):
        data = data.tensors
    if isinstance(data, list) and not all(map(_is_column, data)):
        return None
    if isinstance(data, list) and len(data) > _MAX_LISTED_COLUMNS:
        raise UsageError(
            f"a list of {len(data)} tensors is ambiguous, {len(data)} samples or {len(data)} fields: pass"
            " torch.stack(data) for samples of one shape, or tuple(data) for fields"
        )
    if not _is_column(data) and not isinstance(data, (tuple, list, Mapping)):
        return None
    tree, arrays = take_apart(data, _container_kind)
    if not arrays:
        raise UsageError("nothing to cache: data holds no tensor and no array")
    return GivenColumns(tree, arrays)


def check_dataset(data: Any) -> int:
    """Return the length of a map-style dataset. Raises UsageError for anything else."""
    name = type(data).__name__
    if isinstance(data, IterableDataset):
        raise UsageError(
            f"{name} is an IterableDataset, which has no indices to cache by: use a map-style dataset"
        )
    if not hasattr(data, "__getitem__"):
        raise UsageError(f"{name} cannot be cached: it is not a tensor, an array or a map-style dataset")
    try:
        return len(data)
    except (TypeError, NotImplementedError) as error:
        raise UsageError(f"{name} cannot be cached without a length: define __len__") from error


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
    raise UsageError(f"only tensors and numeric arrays can be cached in place, got {what}")


def _as_tensor(data: Any) -> torch.Tensor:
    if isinstance(data, torch.Tensor):
        if describe_tensor(data).dtype is None:
            raise CacheError(
                f"a tensor of layout {data.layout} cannot be cached: use to_dense() or dequantize()"
            )
        tensor = data.as_subclass(torch.Tensor)
    else:
        with warnings.catch_warnings():  # about read-only arrays: nobody writes to them
            warnings.simplefilter("ignore")
            tensor = torch.from_numpy(np.ascontiguousarray(data) if data.ndim else data)
    if tensor.ndim == 0:
        raise UsageError("a tensor or array with no dimensions has no samples to cache")
    return tensor.contiguous()


def _leaf_of(array: Any, tensor: torch.Tensor) -> Leaf:
    if isinstance(array, torch.Tensor):
        kind = LeafKind.TENSOR
    else:
        kind = LeafKind.ARRAY if tensor.ndim > 1 else LeafKind.SCALAR
    return Leaf(kind, tensor.dtype, tuple(tensor.shape[1:]))


def _reopening(array: Any) -> Any:
    """Return how to map an array's file again, if the array is all of the map."""
    base: object = getattr(array, "base", None)
    if type(array) is not np.memmap or not isinstance(base, mmap.mmap) or not array.filename:
        return None
    order = "C" if array.flags.c_contiguous else "F"
    return np.memmap, (str(array.filename), array.dtype, "r", array.offset, array.shape, order)


def _handing(array: Any, column: torch.Tensor) -> Any:
    """Return how to turn a column into what the user passed."""
    return (torch.Tensor.numpy if isinstance(array, np.ndarray) else torch.Tensor.detach), (column,)


def _columns(tree: Tree, recipes: list[tuple[Any, tuple[Any, ...]]]) -> GivenColumns:
    return GivenColumns(tree, [make(*arguments) for make, arguments in recipes])
