"""Columns side by side: one tensor per value, one row per sample, and batches gathered from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unstarve.fixes.buffers import Allocator, empty_batch
from unstarve.fixes.cached.leaves import Array, Leaf, as_array, reader
from unstarve.fixes.gather import gather
from unstarve.native import native


class Rows:
    """`columns`, C-contiguous and of equal length, for the leaves they hold."""

    def __init__(self, leaves: Sequence[Leaf], columns: Sequence[torch.Tensor]) -> None:
        self.leaves = tuple(leaves)
        self.columns = tuple(columns)
        self._look()

    def __reduce__(self) -> Any:
        return Rows, (self.leaves, self.columns)

    def values(self, row: int) -> list[Any]:
        """Read one row: the values as they were, in memory of their own."""
        if self._addresses != [column.data_ptr() for column in self.columns]:
            self._look()
        return [read(row) for read in self._readers]

    def gather(self, positions: NDArray[np.int64], empty: Allocator = empty_batch) -> list[torch.Tensor]:
        """Copy rows into new batches, one per column. Raises IndexError where one is out of bounds."""
        if self._addresses != [column.data_ptr() for column in self.columns]:
            self._look()
        threads = 1 if torch.get_num_threads() == 1 else 0
        batches = []
        for copy_rows, column, dtype, shape in self._parts:
            batch = empty((len(positions), *shape), dtype)
            copy_rows(column, positions, as_array(batch), threads)
            batches.append(batch)
        return batches

    def _look(self) -> None:
        """Find out where the columns are in memory.

        They move when torch puts a tensor into shared memory, as it does with all that goes to a worker, and
        what numpy sees of one stays at the old address, which is free for others by then.
        """
        compiled = native()
        # What `gather` checks is known to be good here, and checking takes longer than copying a small batch.
        copy_rows = _gather if compiled is None else compiled.gather
        self._addresses = [column.data_ptr() for column in self.columns]
        self._readers: list[Callable[[int], Any]] = [*map(reader, self.leaves, self.columns)]
        self._parts = [
            (copy_rows, as_array(column), column.dtype, tuple(column.shape[1:])) for column in self.columns
        ]


def _gather(column: Array, positions: NDArray[np.int64], batch: Array, threads: int) -> None:
    gather(column, positions, batch, threads=threads)
