"""Rows in memory, in any order: each batch is one copy of its rows, made without workers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader

from unstarve.fixes.loader.engines import in_memory
from unstarve.fixes.loader.engines.batches import Recipe, empty_like_rows, fetch_of, gathered
from unstarve.fixes.loader.engines.epoch import annotation, begin, handed_out
from unstarve.fixes.loader.engines.order import order_of
from unstarve.fixes.loader.engines.pinned import DEPTH, PinnedBatches, empty_pinned
from unstarve.fixes.loader.engines.rows import Table
from unstarve.native import native


def plan(loader: DataLoader[Any]) -> Callable[[], Iterator[Any]] | str:
    """Return what iterates over copies of rows in memory, or why the loader's batches are none."""
    table = in_memory.rows_in(loader)
    return table if isinstance(table, str) else functools.partial(_iterate, loader, table)


def why(loader: DataLoader[Any]) -> str:
    """Say what is gained."""
    way = "one compiled copy" if native() is not None else "one copy"
    without = ", without the workers" if loader.num_workers else ""
    return f"the samples are rows in memory, so that a batch is {way} of its rows{without}"


def _iterate(loader: DataLoader[Any], table: Table) -> Iterator[Any]:
    begun = begin(loader)
    fetch = fetch_of(begun)
    annotate = annotation(begun)
    if begun._pin_memory:
        ahead = loader.num_workers * (loader.prefetch_factor or 0)
        order = order_of(loader, begun._sampler_iter, beyond=DEPTH)
        recipe = Recipe(table, empty_pinned, fetch)
        return handed_out(begun, PinnedBatches(order, recipe, annotate, draws_ahead=ahead))
    order = order_of(loader, begun._sampler_iter)
    return handed_out(begun, gathered(order, Recipe(table, empty_like_rows, fetch), annotate))
