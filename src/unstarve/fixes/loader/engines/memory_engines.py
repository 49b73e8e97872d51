"""The engines for samples that are rows of tensors in memory.

`views`: the order is the dataset's, so each batch is a slice of the tensors and nothing is copied.
`gather`: any order; each batch is one copy of its rows, made without workers.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate

from unstarve.fixes.loader.engines.gathered_batches import (
    DEPTH,
    GatherRecipe,
    PinnedBatches,
    empty_like_rows,
    empty_pinned,
    fetch_of,
    gathered,
)
from unstarve.fixes.loader.engines.index_order import order_of, sequential_count
from unstarve.fixes.loader.engines.row_table import RowTable, row_table
from unstarve.fixes.loader.engines.torch_epoch import (
    Annotate,
    PythonEpochIterator,
    annotation,
    begin,
    handed_out,
)
from unstarve.fixes.loader.resume.epoch_start import index_sampler
from unstarve.fixes.loader.resume.progress import given_before
from unstarve.native import native
from unstarve.stack_levels import uncounted

_OVERRIDES = ("_get_iterator", "_index_sampler", "_auto_collation")
"""Methods of torch's loader: a subclass that overrides one makes its batches in a way not known here."""
_SLICES_AT_ONCE = 64
"""Slices made by one call of torch."""


def rows_in(loader: DataLoader[Any]) -> RowTable | str:
    """Return the rows that make up the loader's batches, or why there are none or workers are needed."""
    return _why_not_settings(loader) or row_table(loader.dataset)


def _why_not_settings(loader: DataLoader[Any]) -> str | None:
    for name in _OVERRIDES:
        known = (getattr(DataLoader, name, None), index_sampler)
        if getattr(type(loader), name, None) not in known:
            return f"{type(loader).__name__} overrides {name}"
    if isinstance(loader.dataset, IterableDataset):
        return "an IterableDataset determines the order of its samples itself"
    if loader.batch_sampler is None:
        return "batch_size=None asks for single samples"
    if loader.collate_fn is not default_collate:
        name = getattr(loader.collate_fn, "__qualname__", type(loader.collate_fn).__name__)
        return f"collate_fn {name} may do anything with the samples"
    if loader.num_workers > 0 and loader.worker_init_fn is not None:
        return "worker_init_fn must run in workers, and this engine has none"
    if loader.num_workers == 0 and loader.timeout != 0:
        return "torch refuses a timeout without workers"
    return None


def plan_views(loader: DataLoader[Any]) -> Callable[[], Iterator[Any]] | str:
    """Return how to iterate over slices of tensors, or why the loader's batches are not slices."""
    count = sequential_count(loader)
    if count is None:
        return "the order is not the dataset's"
    table = rows_in(loader)
    if isinstance(table, str):
        return table
    if table.positions is not None or count > table.leaves[0].shape[0]:
        return "the samples of the Subset are not consecutive"
    if any(leaf.is_inference() for leaf in table.leaves):
        return "the dataset's tensors were created in inference mode, and their slices would stay in it"
    pins = loader.pin_memory and torch.accelerator.is_available()
    if pins and not all(leaf.is_pinned() for leaf in table.leaves):
        return "pin_memory=True asks for pinned batches, and the dataset's memory is not pinned"
    return functools.partial(_iterate_views, loader, table, count)


def why_views(loader: DataLoader[Any]) -> str:
    """Say what this engine gains."""
    return "the samples are in memory in the requested order, so batches are slices and nothing is copied"


@uncounted
def _iterate_views(loader: DataLoader[Any], table: RowTable, count: int) -> Iterator[Any]:
    begun = begin(loader)
    sampler: Any = loader.batch_sampler
    if sampler.drop_last:
        count -= count % sampler.batch_size
    first = given_before(loader) * sampler.batch_size
    return handed_out(begun, Slices(table, first, count, sampler.batch_size, annotation(begun)))


class Slices(PythonEpochIterator):
    """The rows from `first` to `end`, in batches that share memory with the table."""

    def __init__(
        self, table: RowTable, first: int, end: int, batch_size: int, annotate: Annotate | None
    ) -> None:
        super().__init__(annotate)
        self._advance = _slices(table, first, end, batch_size).__next__


def _slices(table: RowTable, begin: int, end: int, batch_size: int) -> Iterator[Any]:
    for first in range(begin, end, batch_size * _SLICES_AT_ONCE):
        last = min(first + batch_size * _SLICES_AT_ONCE, end)
        # unsafe_split: autograd treats each slice as an independent tensor. Ordinary views could not be
        # changed in place together with a model's weights, or would pull the dataset into the graph.
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
            "a batch was changed in place, and with it the dataset, whose memory it shares; "
            "use DataLoader(…, copy=True) to copy batches",
            stacklevel=4,  # the line that asked for the next batch
        )


def plan_gather(loader: DataLoader[Any]) -> Callable[[], Iterator[Any]] | str:
    """Return how to iterate over copies of rows in memory, or why the loader's batches are not rows."""
    table = rows_in(loader)
    return table if isinstance(table, str) else functools.partial(_iterate_gather, loader, table)


def why_gather(loader: DataLoader[Any]) -> str:
    """Say what this engine gains."""
    way = "one compiled copy" if native() is not None else "one copy"
    without = ", made without workers" if loader.num_workers else ""
    return f"the samples are rows in memory, so a batch is {way} of its rows{without}"


@uncounted
def _iterate_gather(loader: DataLoader[Any], table: RowTable) -> Iterator[Any]:
    begun = begin(loader)
    fetch = fetch_of(begun)
    annotate = annotation(begun)
    if begun._pin_memory:
        ahead = loader.num_workers * (loader.prefetch_factor or 0)
        order = order_of(loader, begun._sampler_iter, beyond=DEPTH)
        recipe = GatherRecipe(table, empty_pinned, fetch)
        return handed_out(begun, PinnedBatches(order, recipe, annotate, draws_ahead=ahead))
    order = order_of(loader, begun._sampler_iter)
    return handed_out(begun, gathered(order, GatherRecipe(table, empty_like_rows, fetch), annotate))
