"""Columns side by side: one tensor per value, one row per sample, and batches gathered from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from unstarve.fixes.memory.buffers import Allocator, empty_batch
from unstarve.fixes.samples.gather import gather
from unstarve.fixes.samples.leaves import Leaf, reader
from unstarve.native import native


class Rows:
    """`columns`, C-contiguous and of equal length, for the leaves they hold."""

    def __init__(self, leaves: Sequence[Leaf], columns: Sequence[torch.Tensor]) -> None:
        self.leaves = tuple(leaves)
        self.columns = tuple(columns)
        self._kinds = [(tuple(column.shape[1:]), column.dtype) for column in self.columns]
        self._count = len(self.columns[0]) if self.columns else 0
        compiled = native()
        self._copy = _gather_columns if compiled is None else compiled.gather_columns
        self._look()

    def __reduce__(self) -> Any:
        return Rows, (self.leaves, self.columns)

    def values(self, row: int) -> list[Any]:
        """Read one row: the values as they were, in memory of their own."""
        if self._addresses != [column.data_ptr() for column in self.columns]:
            self._look()
        return [read(row) for read in self._readers]

    def gather(self, indices: list[int], empty: Allocator = empty_batch) -> list[torch.Tensor] | None:
        """Copy rows into new batches, one per column; None where an index is something else than an int.

        Raises IndexError where one is out of bounds.
        """
        count = len(indices)
        batches = []
        for shape, dtype in self._kinds:
            batches.append(empty((count, *shape), dtype))  # faster before Python 3.12
        threads = 1 if torch.get_num_threads() == 1 else 0
        return batches if self._copy(self.columns, self._count, indices, batches, threads) else None

    def _look(self) -> None:
        """Find out where the columns are in memory, for reading single rows.

        They move when torch puts a tensor into shared memory, as it does with all that goes to a worker, and
        what numpy sees of one stays at the old address, which is free for others by then.
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
    """Do what the compiled function does, in Python."""
    if not all(type(index) is int for index in indices):
        return False
    positions = np.array(indices, np.int64)
    for column, batch in zip(columns, batches, strict=True):
        gather(column, positions, batch, threads=threads)
    return True
