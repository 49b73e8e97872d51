"""One iteration over the dataset: what comes next in it, and what of that is under way."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any

import numpy as np
import torch

from unstarve.fixes.datasets.prefetch.order import Order, Stride
from unstarve.fixes.datasets.prefetch.tasks import Runner, Task
from unstarve.fixes.datasets.prefetch.torch_order import NOT_OURS, Path

Fetch = Callable[[Any], Any]
"""From a unit to what it holds: from an index to a sample, from a whole batch of indices to its samples."""


class Iteration:
    """What is being fetched ahead for one iteration; without an `order`, accesses are guessed.

    `batches` says whether the order's items are batches; None looks at each. `path` leads from the loader's
    indices to the dataset's.
    """

    def __init__(
        self, order: Order | None = None, path: Path | None = None, batches: bool | None = None
    ) -> None:
        self._order = (lambda: None) if order is None else weakref.ref(order)
        self.path = path
        self._batches = batches
        self._stride = Stride()
        self._flight: dict[Any, list[Task]] = {}
        self._runner: Runner | None = None
        self._lock = threading.Lock()
        self._given = 0
        self._taken = 0
        if order is not None:
            weakref.finalize(order, self.abandon).atexit = False

    def start(
        self, runner: Runner, fetch: Fetch, units: list[Any], ahead: Iterable[Any]
    ) -> tuple[list[Task], list[Task]]:
        """Have the units fetched, and those `ahead` behind them; return the tasks of both.

        What is under way already is taken over; what nobody wants any more is dropped.
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

    def take(self, fetch: Fetch, unit: Any) -> Task | None:
        """Return the task that fetches the unit already, or None."""
        with self._lock:
            return _taken(self._flight, fetch, unit)

    def is_busy(self) -> bool:
        """Whether anything was fetched ahead and not asked for yet."""
        return any(self._flight.values())

    def abandon(self) -> None:
        """Drop everything under way; takes no lock, so that a finalizer may call it."""
        flight, self._flight = self._flight, {}
        for tasks in tuple(flight.values()):
            drop(tasks)
        if self._runner is not None:
            self._runner.leave()

    def see(self, indices: list[Any], alone: bool) -> None:
        """Note what is being asked for; `alone`, if not as a batch."""
        order = self._order()
        if order is None:
            self._stride.see(indices)
        elif alone:
            self._taken = self._taken + 1 if self._given == order.given else 1
            self._given = order.given

    def samples_ahead(self, most: int, count: Callable[[], int | None], alone: bool) -> list[Any]:
        """The next `most` indices; `alone`, if the batch that was given last is asked for one by one.

        `count()` is the size of the dataset, which a guess must not leave.
        """
        order = self._order()
        if order is None:
            guesses = (index for batch in self._stride.ahead(count()) for index in batch)
            return [*islice(guesses, most)]
        rest = islice(self._own(order.current), self._taken, None) if alone else iter(())
        # In a concatenation most indices may belong to others: do not look for ours without end.
        items = islice(order.ahead(), 16 + 4 * most)
        return [*islice(chain(rest, chain.from_iterable(map(self._own, items))), most)] if most else []

    def batches_ahead(self, most: int, count: Callable[[], int | None]) -> list[list[Any]]:
        """The next batches of indices where they are known: at least one, else `most` indices in all."""
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


def drop(tasks: Iterable[Task]) -> None:
    """Say that nobody will ask for these results."""
    for task in tasks:
        task.dropped = True


def _submitted(runner: Runner, fetch: Fetch, unit: Any) -> Task:
    task = Task(fetch, unit)
    runner.submit(task)
    return task


def _taken(flight: dict[Any, list[Task]], fetch: Fetch, unit: Any) -> Task | None:
    tasks = flight.get((fetch, _key(unit)))
    return tasks.pop(0) if tasks else None


def _key(unit: Any) -> Any:
    if isinstance(unit, list):
        return (list, *map(_key, unit))
    try:
        hash(unit)
    except TypeError:
        return id(unit)  # the task that is found by it keeps the unit alive
    return unit
