"""Batches gathered from rows, one after the other: the compiled iterator and its Python twin."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data._utils.fetch import _MapDatasetFetcher
from torch.utils.data._utils.pin_memory import pin_memory

from unstarve.fixes.loader.engines.epoch import PROFILER, Annotate, Epoch, InMemoryIter, PythonEpoch
from unstarve.fixes.loader.engines.order import Cuts, Indices, Order, as_index
from unstarve.fixes.loader.engines.rows import Table
from unstarve.fixes.samples.gather import gather
from unstarve.native import native


@dataclass(frozen=True)
class Recipe:
    """How indices become a batch."""

    table: Table
    allocate: Callable[[torch.Tensor, int], torch.Tensor]
    """A tensor and a number of rows → an empty batch of its rows."""
    fetch: Callable[[Any], Any]
    """What torch makes of indices that are not understood here: a batch, or an exception of its own."""

    def batch(self, indices: Any) -> Any:
        """Return the batch of these indices, whatever a batch sampler gave them as."""
        index = as_index(indices)
        if index is not None and self.table.positions is not None:
            index = _looked_up(self.table.positions, index)
        if index is None:
            return self.fetch(indices)
        try:
            tensors = [gather(leaf, index, self.allocate(leaf, len(index))) for leaf in self.table.leaves]
        except IndexError:
            return self.fetch(indices)
        return tensors[0] if self.table.build is None else self.table.build(tensors)


def _looked_up(positions: Indices, index: Indices) -> Indices | None:
    inside = (index >= -len(positions)) & (index < len(positions))
    return positions[index] if inside.all() else None


def empty_like_rows(leaf: torch.Tensor, count: int) -> torch.Tensor:
    """Return room for so many rows of the leaf, in ordinary memory."""
    return leaf.new_empty((count, *leaf.shape[1:]))


def fetch_of(begun: InMemoryIter) -> Callable[[Any], Any]:
    """Return torch's own way from indices to a batch."""
    fetcher: Any = _MapDatasetFetcher(begun._dataset, True, begun._collate_fn, begun._drop_last)
    pin: Any = functools.partial(pin_memory, device=begun._pin_memory_device) if begun._pin_memory else None

    def fetch(indices: Any) -> Any:
        batch = fetcher.fetch(indices.tolist() if isinstance(indices, np.ndarray) else indices)
        return batch if pin is None else pin(batch)

    return fetch


def gathered(order: Order, recipe: Recipe, annotate: Annotate | None) -> Iterator[Any]:
    """Return an iterator over the batches of an epoch, each in memory that nobody else sees."""
    compiled = native()
    if compiled is None:
        return TwinBatches(order, recipe, annotate)
    leaves = [(leaf, functools.partial(recipe.allocate, leaf)) for leaf in recipe.table.leaves]
    batches: Iterator[Any] = _compiled_class(compiled.Batches)(
        source=order.source,
        whole=order.whole,
        batch_size=order.batch_size,
        drop_last=order.drop_last,
        leaves=leaves,
        table=recipe.table.positions,
        empty_like=torch.empty_like,
        storage_uses=_storage_uses(),
        build=recipe.table.build,
        as_index=as_index,
        fetch=recipe.fetch,
        annotate=annotate,
        profiler=PROFILER,
        threads=1 if torch.get_num_threads() == 1 else 0,
    )
    return batches


@functools.cache
def _compiled_class(base: type[Any]) -> type[Any]:
    return type("CompiledBatches", (Epoch, base), {"__module__": __name__})


@functools.cache
def _storage_uses() -> Callable[[int], int] | None:
    """Return torch's count of a storage's users; None where memory may be in use beyond what it counts.

    A copy to CUDA has read pageable memory when it returns; of other accelerators that is not known.
    """
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is not None and accelerator.type != "cuda":
        return None
    return getattr(torch._C, "_storage_Use_Count", None)


class TwinBatches(PythonEpoch):
    """What the compiled iterator does, in Python; memory is not used again."""

    def __init__(self, order: Order, recipe: Recipe, annotate: Annotate | None) -> None:
        super().__init__(annotate)
        self._indices: Iterator[Any] = (
            order.source if order.whole else Cuts(order.source, order.batch_size, order.drop_last)
        )
        self._recipe = recipe

    def _advance(self) -> Any:
        return self._recipe.batch(next(self._indices))
