"""Batches gathered from rows, by a compiled iterator, by its Python twin, or by a thread in pinned memory.

The pinned memory is torch's: it knows when a device has finished reading a block and reuses none before.
"""

from __future__ import annotations

import functools
import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data._utils.fetch import _MapDatasetFetcher
from torch.utils.data._utils.pin_memory import pin_memory

from unstarve.fixes.loader.engines.index_order import BatchCutter, IndexOrder, Indices, as_index
from unstarve.fixes.loader.engines.row_table import RowTable
from unstarve.fixes.loader.engines.torch_epoch import (
    PROFILER,
    Annotate,
    BegunEpoch,
    EpochIterator,
    PythonEpochIterator,
)
from unstarve.fixes.loader.resume.progress import UNTRACKED
from unstarve.fixes.samples.gather import gather
from unstarve.native import native


@dataclass(frozen=True)
class GatherRecipe:
    """How indices become a batch of rows."""

    table: RowTable
    allocate: Callable[[torch.Tensor, int], torch.Tensor]
    """Makes an empty batch of a tensor's rows, given the tensor and the number of rows."""
    fetch: Callable[[Any], Any]
    """torch's way, for indices not understood here: returns a batch or raises torch's exception."""

    def batch(self, indices: Any) -> Any:
        """Return the batch of these indices, in whatever form the batch sampler gave them."""
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
    """Return an empty batch of `count` rows of the leaf, in ordinary memory."""
    return leaf.new_empty((count, *leaf.shape[1:]))


def fetch_of(begun: BegunEpoch) -> Callable[[Any], Any]:
    """Return torch's own function from indices to a batch."""
    fetcher: Any = _MapDatasetFetcher(begun._dataset, True, begun._collate_fn, begun._drop_last)
    pin: Any = functools.partial(pin_memory, device=begun._pin_memory_device) if begun._pin_memory else None

    def fetch(indices: Any) -> Any:
        batch = fetcher.fetch(indices.tolist() if isinstance(indices, np.ndarray) else indices)
        return batch if pin is None else pin(batch)

    return fetch


def gathered(order: IndexOrder, recipe: GatherRecipe, annotate: Annotate | None) -> Iterator[Any]:
    """Return an iterator over the batches of an epoch, each in memory that is in use nowhere else."""
    compiled = native()
    if compiled is None:
        return PythonBatches(order, recipe, annotate)
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
    batches.progress = UNTRACKED  # type: ignore[attr-defined]  # see EpochIterator
    return batches


@functools.cache
def _compiled_class(base: type[Any]) -> type[Any]:
    own = {"__module__": __name__, "progress": base.progress}
    return type("CompiledBatches", (EpochIterator, base), own)


@functools.cache
def _storage_uses() -> Callable[[int], int] | None:
    """Return torch's count of a storage's users; None if memory may be in use beyond that count.

    A copy to CUDA has read pageable memory by the time it returns; for other accelerators that is unknown.
    """
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is not None and accelerator.type != "cuda":
        return None
    return getattr(torch._C, "_storage_Use_Count", None)


class PythonBatches(PythonEpochIterator):
    """The compiled iterator in Python; it does not reuse memory."""

    def __init__(self, order: IndexOrder, recipe: GatherRecipe, annotate: Annotate | None) -> None:
        super().__init__(annotate)
        self._indices: Iterator[Any] = (
            order.source if order.whole else BatchCutter(order.source, order.batch_size, order.drop_last)
        )
        self._recipe = recipe

    def _advance(self) -> Any:
        return self._recipe.batch(next(self._indices))


DEPTH = 2
"""Batches ready or in the making: with one, the thread would wait for the caller."""

_JOIN_S = 10.0


def empty_pinned(leaf: torch.Tensor, count: int) -> torch.Tensor:
    """Return an empty batch of `count` rows of the leaf, in pinned memory."""
    return torch.empty((count, *leaf.shape[1:]), dtype=leaf.dtype, device="cpu", pin_memory=True)


class PinnedBatches(PythonEpochIterator):
    """Batches that a thread makes ahead while the device is busy, never further than their indices are drawn.

    Without workers (`draws_ahead` 0) torch draws indices when a batch is asked for; drawing them earlier
    would show in the generators. With workers torch draws ahead, and so does this.
    """

    def __init__(
        self, order: IndexOrder, recipe: GatherRecipe, annotate: Annotate | None, *, draws_ahead: int = 0
    ) -> None:
        super().__init__(annotate)
        self._indices: Iterator[Any] = (
            order.source if order.whole else BatchCutter(order.source, order.batch_size, order.drop_last)
        )
        self._draws_ahead = draws_ahead
        self._depth = min(draws_ahead, DEPTH) if draws_ahead else DEPTH
        self._asked = 0
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._pin_memory_thread = threading.Thread(
            target=_work,
            args=(self._jobs, self._done, recipe.batch, _device()),
            daemon=True,
            name="unstarve-pin",
        )
        self._pin_memory_thread.start()
        self._stop = weakref.finalize(self, _end, self._jobs, self._pin_memory_thread)
        if draws_ahead:
            self._ask_ahead()

    def _advance(self) -> Any:
        self._ask_ahead()
        if not self._asked:
            try:
                self._ask(next(self._indices))
            except StopIteration:
                self._stop()
                raise
        batch, error = self._done.get()
        self._asked -= 1
        self._ask_ahead()
        if error is not None:
            raise error
        return batch

    def _ask_ahead(self) -> None:
        while self._asked < self._depth and self._is_drawn():
            try:
                self._ask(next(self._indices))
            except StopIteration:
                self._indices = iter(())
                self._draws_ahead = 0

    def _is_drawn(self) -> bool:
        ready: Callable[[], bool] | None = getattr(self._indices, "ready", None)
        return self._draws_ahead > 0 or (ready is not None and ready())

    def _ask(self, indices: Any) -> None:
        self._jobs.put((indices,))
        self._asked += 1


def _device() -> int | None:
    return torch.cuda.current_device() if torch.cuda.is_available() else None


def _work(jobs: Any, done: Any, make: Callable[[Any], Any], device: int | None) -> None:
    if device is not None:
        torch.cuda.set_device(device)
    while (job := jobs.get()) is not None:
        try:
            done.put((make(*job), None))
        except BaseException as error:  # raised again where the batch is taken
            done.put((None, error))
        del job


def _end(jobs: Any, thread: threading.Thread) -> None:
    """Let the thread finish its work, also at exit: it must not be inside torch when Python ends."""
    jobs.put(None)
    if thread is not threading.current_thread():
        thread.join(_JOIN_S)
