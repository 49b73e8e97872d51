"""Batches in pinned memory, made ahead by a thread while the device is busy with those before.

The memory is torch's: it knows when a device has finished reading a block, and gives none away before.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from unstarve.fixes.loader.engines.batches import Recipe
from unstarve.fixes.loader.engines.epoch import Annotate, PythonEpoch
from unstarve.fixes.loader.engines.order import Cuts, Order

DEPTH = 2
"""Batches that lie ready or are being made: one would leave the thread waiting for the caller."""

_JOIN_S = 10.0


def empty_pinned(leaf: torch.Tensor, count: int) -> torch.Tensor:
    """Return room for so many rows of the leaf in pinned memory."""
    return torch.empty((count, *leaf.shape[1:]), dtype=leaf.dtype, device="cpu", pin_memory=True)


class PinnedBatches(PythonEpoch):
    """Batches made ahead, but never further than their indices are drawn.

    Without workers (`draws_ahead` 0) torch draws indices when a batch is asked for; a thread that drew them
    earlier would be seen in the generators. With workers torch draws ahead, and so does this.
    """

    def __init__(
        self, order: Order, recipe: Recipe, annotate: Annotate | None, *, draws_ahead: int = 0
    ) -> None:
        super().__init__(annotate)
        self._indices: Iterator[Any] = (
            order.source if order.whole else Cuts(order.source, order.batch_size, order.drop_last)
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
    """Let the thread finish what it has; at exit, too: it must not be inside torch when Python ends."""
    jobs.put(None)
    if thread is not threading.current_thread():
        thread.join(_JOIN_S)
