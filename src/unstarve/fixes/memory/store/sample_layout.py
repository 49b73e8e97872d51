"""The layout that most samples of a dataset share, and how values are stored by it.

Values of one type and shape lie in rows: one tensor per value, one row per sample. All other values, and
samples that have another layout, are stored as pickled bytes.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from unstarve.fixes.memory.buffers import Allocator, empty_batch
from unstarve.fixes.samples.gather import gather
from unstarve.fixes.samples.leaves import OBJECT, Leaf, LeafKind, as_array, describe, fitter, reader
from unstarve.fixes.samples.structure import Node, Structure, Tree, collated, is_plain, tree_of, values_like
from unstarve.native import native


@dataclass(frozen=True)
class SampleLayout(Structure[Leaf]):
    """The structure and the values that most samples have.

    `batchable`: `default_collate` would return the gathered rows of such samples.
    """

    batchable: bool

    @cached_property
    def in_rows(self) -> tuple[int, ...]:
        """The numbers of the values that lie in rows."""
        return tuple(at for at, leaf in enumerate(self.leaves) if leaf.dtype is not None)

    @cached_property
    def in_blobs(self) -> tuple[int, ...]:
        """The numbers of the values that are pickled."""
        return tuple(at for at, leaf in enumerate(self.leaves) if leaf.dtype is None)

    @property
    def row_bytes(self) -> int:
        """Bytes of one sample's rows."""
        return sum(leaf.row_bytes for leaf in self.leaves)

    def __reduce__(self) -> Any:
        return SampleLayout, (self.tree, self.leaves, self.batchable)  # without cached properties

    def values(self, sample: Any) -> list[Any] | None:
        """Take a sample apart; None if it has another layout."""
        values = values_like(self.tree, sample)
        if values is not None:
            for fits, value in zip(self._fitters, values, strict=True):
                if not fits(value):
                    return None
        return values

    @cached_property
    def _fitters(self) -> list[Callable[[Any], bool]]:
        return [*map(fitter, self.leaves)]

    def __str__(self) -> str:
        return ", ".join(map(str, self.leaves))


def check(sample: Any) -> None:
    """Raise CacheError if a value in the sample cannot be cached."""
    for value in tree_of(sample)[1]:
        describe(value)


def layout_of(samples: Sequence[Any]) -> SampleLayout:
    """Find the layout that samples share: the structure first, then type and shape of each value."""
    tree, values = tree_of(samples[0])
    leaves = [describe(value) for value in values]
    for sample in samples[1:]:
        other_tree, other_values = tree_of(sample)
        if other_tree != tree:
            return SampleLayout(0, (OBJECT,), batchable=False)
        for at, value in enumerate(other_values):
            if describe(value) != leaves[at]:
                leaves[at] = OBJECT
    return SampleLayout(tree, tuple(leaves), _is_batchable(tree, leaves, samples[0]))


def may_batch(tree: Tree, leaves: Sequence[Leaf]) -> bool:
    """Whether a loader could accept a finished batch of such samples at all."""
    if tree == 0 and leaves[0].kind not in (LeafKind.TENSOR, LeafKind.ARRAY):
        return False
    return is_plain(tree) and all(leaf.collates for leaf in leaves) and any(leaf.dtype for leaf in leaves)


def _is_batchable(tree: Tree, leaves: Sequence[Leaf], sample: Any) -> bool:
    """Compare with `default_collate` itself: its batch of two samples must equal two gathered rows."""
    if not may_batch(tree, leaves):
        return False
    try:
        batch = default_collate([sample, sample])
    except Exception:  # anything: then only a collate function of the user's can batch these samples
        return False
    values = values_like(collated(tree), batch)
    return values is not None and all(map(_is_gathered, leaves, values))


def _is_gathered(leaf: Leaf, batch: Any) -> bool:
    if leaf.kind is LeafKind.TEXT:
        return isinstance(batch, (tuple, list))
    return type(batch) is torch.Tensor and batch.dtype == leaf.dtype and batch.shape == (2, *leaf.shape)


class Rows:
    """Columns side by side: one C-contiguous tensor per leaf, all of the same length."""

    def __init__(self, leaves: Sequence[Leaf], columns: Sequence[torch.Tensor]) -> None:
        self.leaves = tuple(leaves)
        self.columns = tuple(columns)
        self._kinds = [(tuple(column.shape[1:]), column.dtype) for column in self.columns]
        self._count = len(self.columns[0]) if self.columns else 0
        compiled = native()
        self._copy = _gather_columns if compiled is None else compiled.gather_columns
        self._make_readers()

    def __reduce__(self) -> Any:
        return Rows, (self.leaves, self.columns)

    def values(self, row: int) -> list[Any]:
        """Read one row as copies of the values that were written."""
        if self._addresses != [column.data_ptr() for column in self.columns]:
            self._make_readers()
        return [read(row) for read in self._readers]

    def gather(self, indices: list[int], empty: Allocator = empty_batch) -> list[torch.Tensor] | None:
        """Copy rows into new batches, one per column; None if an index is not an int.

        Raises IndexError if one is out of bounds.
        """
        count = len(indices)
        batches = []
        for shape, dtype in self._kinds:
            batches.append(empty((count, *shape), dtype))  # faster than a comprehension before Python 3.12
        threads = 1 if torch.get_num_threads() == 1 else 0
        return batches if self._copy(self.columns, self._count, indices, batches, threads) else None

    def _make_readers(self) -> None:
        """Make the functions that read single rows, for the columns' current addresses.

        torch moves a tensor when it puts it into shared memory, as it does with everything it sends to a
        worker. A numpy view keeps the old address, which may belong to something else by then.
        """
        self._addresses = [column.data_ptr() for column in self.columns]
        self._readers: list[Callable[[int], Any]] = [*map(reader, self.leaves, self.columns)]


def _gather_columns(
    columns: tuple[torch.Tensor, ...],
    row_count: int,
    indices: list[int],
    batches: list[torch.Tensor],
    threads: int,
) -> bool:
    """Do in Python what the compiled function does."""
    if not all(type(index) is int for index in indices):
        return False
    positions = np.array(indices, np.int64)
    for column, batch in zip(columns, batches, strict=True):
        gather(column, positions, batch, threads=threads)
    return True


def dumps(value: Any) -> bytes:
    """Pickle a value, tensors as their plain bytes. Raises whatever pickle raises.

    pickle alone would write every tensor as a separate archive: ten times slower and a kilobyte longer.
    """
    with io.BytesIO() as file:
        _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
        return file.getvalue()


def loads(data: bytes) -> Any:
    """Return the value that `dumps` pickled, also if an earlier unstarve did."""
    try:
        return pickle.loads(data)
    except (ModuleNotFoundError, AttributeError):  # its classes were in other modules then
        return _OldUnpickler(io.BytesIO(data)).load()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if type(value) is not torch.Tensor or not _is_plain_memory(value):
            return NotImplemented
        return _tensor, (as_array(value.contiguous()).tobytes(), value.dtype, tuple(value.shape))


class _OldUnpickler(pickle.Unpickler):
    """Finds our own classes by name alone, whatever module they were in when the file was written."""

    def find_class(self, module: str, name: str) -> Any:
        ours = _OURS.get(name) if module.partition(".")[0] == "unstarve" else None
        return super().find_class(module, name) if ours is None else ours


def _is_plain_memory(tensor: torch.Tensor) -> bool:
    return (
        tensor.is_cpu
        and tensor.layout is torch.strided
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_nested)
        and not (tensor.is_conj() or tensor.is_neg())
    )


def _tensor(data: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype).view(shape)


_OURS: dict[str, Any] = {
    **{one.__name__: one for one in (SampleLayout, Node, Leaf, LeafKind, _tensor)},
    "Layout": SampleLayout,
    "Kind": LeafKind,
}
"""By their names now and in earlier versions."""
