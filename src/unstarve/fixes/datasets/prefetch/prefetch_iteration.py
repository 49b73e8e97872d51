"""One iteration over the dataset: what comes next in it, and what is being fetched."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any

import numpy as np
import torch

from unstarve.fixes.datasets.prefetch.fetch_threads import FetchRunner, FetchTask
from unstarve.fixes.datasets.prefetch.sampler_order import NOT_OURS, IndexPath, PulledOrder, StrideGuess

Fetch = Callable[[Any], Any]
"""From a unit to its value: from an index to a sample, or from a batch of indices to its samples."""


class Iteration:
    """What is fetched ahead for one iteration; without an `order`, accesses are guessed.

    `batches` says whether the order's items are batches; None checks each. `path` converts the loader's
    indices to the dataset's.
    """

    def __init__(
        self, order: PulledOrder | None = None, path: IndexPath | None = None, batches: bool | None = None
    ) -> None:
        self._order = (lambda: None) if order is None else weakref.ref(order)
        self.path = path
        self._batches = batches
        self._stride = StrideGuess()
        self._flight: dict[Any, list[FetchTask]] = {}
        self._runner: FetchRunner | None = None
        self._lock = threading.Lock()
        self._given = 0
        self._taken = 0
        if order is not None:
            weakref.finalize(order, self.abandon).atexit = False

    def start(
        self, runner: FetchRunner, fetch: Fetch, units: list[Any], ahead: Iterable[Any]
    ) -> tuple[list[FetchTask], list[FetchTask]]:
        """Start to fetch the units and then those `ahead`; return the tasks of both.

        Tasks that are running already are reused; tasks that nobody wants any more are dropped.
        """
        with self._lock:
            self._runner = runner
            before, self._flight = self._flight, {}
            asked = [_taken(before, fetch, unit) or _submitted(runner, fetch, unit) for unit in units]
            later = []
            for unit in ahead:
                task = _taken(before, fetch, unit) or _submitted(runner, fetch, unit)
                self._flight.setdefault((fetch, _key(unit)), []).append(task)
                later.append(task)
            for tasks in before.values():
                drop(tasks)
        return asked, later

    def take(self, fetch: Fetch, unit: Any) -> FetchTask | None:
        """Return the task that already fetches the unit, or None."""
        with self._lock:
            return _taken(self._flight, fetch, unit)

    def is_busy(self) -> bool:
        """Whether anything was fetched ahead that was not asked for yet."""
        return any(self._flight.values())

    def abandon(self) -> None:
        """Drop all tasks. Takes no lock, so that a finalizer may call it."""
        flight, self._flight = self._flight, {}
        for tasks in tuple(flight.values()):
            drop(tasks)
        if self._runner is not None:
            self._runner.leave()

    def see(self, indices: list[Any], alone: bool) -> None:
        """Note what is asked for; `alone` means one index, not a batch."""
        order = self._order()
        if order is None:
            self._stride.see(indices)
        elif alone:
            self._taken = self._taken + 1 if self._given == order.given else 1
            self._given = order.given

    def samples_ahead(self, most: int, count: Callable[[], int | None], alone: bool) -> list[Any]:
        """Return the next `most` indices; `alone` means that the current batch is asked for one by one.

        `count()` is the size of the dataset, which limits guesses.
        """
        order = self._order()
        if order is None:
            guesses = (index for batch in self._stride.ahead(count()) for index in batch)
            return [*islice(guesses, most)]
        rest = islice(self._own(order.current), self._taken, None) if alone else iter(())
        # In a ConcatDataset most indices may belong to other datasets: limit the search for ours.
        items = islice(order.ahead(), 16 + 4 * most)
        return [*islice(chain(rest, chain.from_iterable(map(self._own, items))), most)] if most else []

    def batches_ahead(self, most: int, count: Callable[[], int | None]) -> list[list[Any]]:
        """Return the next known batches of indices: at least one, and up to `most` indices in all."""
        order = self._order()
        items = self._stride.ahead(count()) if order is None else order.ahead()
        batches: list[list[Any]] = []
        for item in items:
            if order is not None and not self._is_batch(item):
                break
            batches.append(item if order is None else [*self._own(item)])
            most -= len(batches[-1])
            if most < len(batches[-1]):
                break
        return batches

    def _own(self, item: Any) -> Iterator[Any]:
        indices = item if self._is_batch(item) else (item,)
        if self.path is None:
            return iter(indices)
        return (own for own in map(self.path, indices) if own is not NOT_OURS)

    def _is_batch(self, item: Any) -> bool:
        if self._batches is not None or item is None:
            return bool(self._batches)
        return isinstance(item, list) or (isinstance(item, np.ndarray | torch.Tensor) and item.ndim == 1)


def drop(tasks: Iterable[FetchTask]) -> None:
    """Mark tasks whose results nobody will ask for."""
    for task in tasks:
        task.dropped = True


def _submitted(runner: FetchRunner, fetch: Fetch, unit: Any) -> FetchTask:
    task = FetchTask(fetch, unit)
    runner.submit(task)
    return task


def _taken(flight: dict[Any, list[FetchTask]], fetch: Fetch, unit: Any) -> FetchTask | None:
    tasks = flight.get((fetch, _key(unit)))
    return tasks.pop(0) if tasks else None


def _key(unit: Any) -> Any:
    if isinstance(unit, list):
        return (list, *map(_key, unit))
    try:
        hash(unit)
    except TypeError:
        return id(unit)  # the task keeps the unit alive
    return unit
