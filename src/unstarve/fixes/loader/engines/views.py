"""Rows in memory, in their natural order: each batch is a slice of the tensors, and nothing is copied."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader

from unstarve.fixes.loader.engines import in_memory
from unstarve.fixes.loader.engines.epoch import Annotate, PythonEpoch, annotation, begin, handed_out
from unstarve.fixes.loader.engines.order import sequential_count
from unstarve.fixes.loader.engines.rows import Table

SHARES_MEMORY = True
"""A batch that is changed in place changes the dataset."""

_AT_ONCE = 64
"""Slices that are made by one call of torch."""


def plan(loader: DataLoader[Any]) -> Callable[[], Iterator[Any]] | str:
    """Return what iterates over slices of tensors, or why the loader's batches are none."""
    count = sequential_count(loader)
    if count is None:
        return "the order is not that of the dataset"
    table = in_memory.rows_in(loader)
    if isinstance(table, str):
        return table
    if table.positions is not None or count > table.leaves[0].shape[0]:
        return "the samples of the Subset do not lie one after the other"
    if any(leaf.is_inference() for leaf in table.leaves):
        return "the dataset's tensors were made in inference mode, which their slices would not leave"
    pins = loader.pin_memory and torch.accelerator.is_available()
    if pins and not all(leaf.is_pinned() for leaf in table.leaves):
        return "pin_memory=True asks for batches in pinned memory, where the dataset is not"
    return functools.partial(_iterate, loader, table, count)


def why(loader: DataLoader[Any]) -> str:
    """Say what is gained."""
    return "the samples lie in memory in the order asked for, so that batches are slices: nothing is copied"


def _iterate(loader: DataLoader[Any], table: Table, count: int) -> Iterator[Any]:
    begun = begin(loader)
    sampler: Any = loader.batch_sampler
    if sampler.drop_last:
        count -= count % sampler.batch_size
    return handed_out(begun, Slices(table, count, sampler.batch_size, annotation(begun)))


class Slices(PythonEpoch):
    """The first `count` rows, in batches that share their memory."""

    def __init__(self, table: Table, count: int, batch_size: int, annotate: Annotate | None) -> None:
        super().__init__(annotate)
        self._advance = _slices(table, count, batch_size).__next__


def _slices(table: Table, count: int, batch_size: int) -> Iterator[Any]:
    for first in range(0, count, batch_size * _AT_ONCE):
        last = min(first + batch_size * _AT_ONCE, count)
        # To autograd each slice is a tensor of its own: ordinary views would refuse to be changed in place
        # together with a model's weights, or take the dataset into its graph.
        parts = [torch.unsafe_split(leaf[first:last], batch_size) for leaf in table.leaves]
        try:
            if table.build is None:
                yield from parts[0]
            else:
                yield from map(table.build, zip(*parts, strict=True))
        finally:
            _warn_if_changed(parts)


def _warn_if_changed(parts: Sequence[Sequence[torch.Tensor]]) -> None:
    if any(not part.is_inference() and part._version for leaf in parts for part in leaf):
        warnings.warn(
            "a batch was changed in place, and with it the dataset, whose memory it shares: "
            "DataLoader(…, copy=True) gives batches memory of their own",
            stacklevel=4,  # who asked for the batch after it
        )
