"""How the samples of one dataset are fetched: with threads or without, and what of them ahead."""

from __future__ import annotations

import inspect
import operator
import os
import time
import weakref
from functools import partial
from typing import Any

from torch.utils.data import Subset

from unstarve.fixes.datasets.prefetch.background import Background
from unstarve.fixes.datasets.prefetch.iteration import Fetch, Iteration, drop
from unstarve.fixes.datasets.prefetch.judge import Judge, Mode, warn
from unstarve.fixes.datasets.prefetch.tasks import Task, is_awaitable

_LEAST_FOR_A_TRIAL = 4


class Fetcher:
    """Belongs to one dataset in one process, or to both sides of a fork: each then has threads of its own."""

    def __init__(self, source: Any, queue_size: int, num_workers: int) -> None:
        self.judge = Judge(num_workers)
        self._source = source
        self._queue_size = queue_size
        self._num_workers = num_workers
        self._background: Background | None = None
        self._warned = False
        self.plain_sample: Fetch = partial(operator.getitem, source)
        self._many: Fetch | None = partial(_whole_batch, source) if _has_batches(source) else None
        asked = "__getitem__" if self._many is None else "__getitems__"
        self.asynchronous = inspect.iscoroutinefunction(getattr(type(source), asked, None))

    def here(self) -> Background:
        """What this process has going; a process that a fork made starts anew."""
        background = self._background
        if background is None or background.process != os.getpid():
            background = self._background = Background(self._num_workers)
            self._at_end = weakref.finalize(self, background.close)
            self._at_end.atexit = False
        return background

    def close(self) -> None:
        """End the threads and drop what they fetched."""
        background, self._background = self._background, None
        if background is not None and background.process == os.getpid():
            self._at_end()

    def one(self, iteration: Iteration, index: Any) -> Any:
        """Return the sample at `index`."""
        return self._fetched(iteration, self.plain_sample, [index], [index], alone=True)[0]

    def batch(self, iteration: Iteration, indices: Any) -> Any:
        """Return the samples of a batch."""
        if self._many is not None:
            return self._fetched(iteration, self._many, [indices], indices, alone=False)[0]
        return self._fetched(iteration, self.plain_sample, [*indices], indices, alone=False)

    def plain_batch(self, indices: Any) -> Any:
        """Return the samples of a batch as torch's loader would get them."""
        if self._many is not None:
            return self._many(indices)
        source = self._source
        return [source[index] for index in indices]

    def _fetched(
        self, iteration: Iteration, fetch: Fetch, units: list[Any], indices: Any, alone: bool
    ) -> list[Any]:
        """Return what the units hold; see to it that what comes next is under way."""
        judge = self.judge
        iteration.see(indices, alone)
        done: list[Any] = []
        while judge.mode is Mode.PROBE and not self.asynchronous and len(done) < len(units):
            done.append(self._probed(iteration, fetch, units[len(done)]))
        if judge.mode is Mode.TRIAL and not self.asynchronous:
            done += self._tried(iteration, fetch, units[len(done) :], alone)
        if judge.mode is Mode.INLINE:
            self._go_inline()
        rest = units[len(done) :]
        if judge.mode is Mode.THREADS or self.asynchronous:
            runner = self.here().runner(self.asynchronous)
            tasks, _ = iteration.start(runner, fetch, rest, self._ahead(iteration, fetch, alone))
            return done + self._results(tasks)
        for unit in rest:
            task = iteration.take(fetch, unit)
            done.append(fetch(unit) if task is None else task.result())
        return done

    def _ahead(self, iteration: Iteration, fetch: Fetch, alone: bool) -> list[Any]:
        if self._queue_size == 0:
            return []
        if fetch is self._many:
            return iteration.batches_ahead(self._queue_size, self._count)
        return iteration.samples_ahead(self._queue_size, self._count, alone)

    def _count(self) -> int | None:
        try:
            return len(self._source)
        except (TypeError, NotImplementedError):  # torch's Dataset has no length unless one is defined
            return None

    def _results(self, tasks: list[Task]) -> list[Any]:
        try:
            values = [task.result() for task in tasks]
        except BaseException:  # also Ctrl-C: nobody takes the rest
            drop(tasks)
            raise
        self.judge.used_threads(sum(task.cpu_s for task in tasks))
        return values

    def _probed(self, iteration: Iteration, fetch: Fetch, unit: Any) -> Any:
        task = iteration.take(fetch, unit)
        if task is None:
            value = self.judge.probe(partial(fetch, unit))
            if not is_awaitable(value):
                return value
            self.asynchronous = True
            task = Task(lambda _: value, unit)
            self.here().runner(True).submit(task)
        return task.result()

    def _tried(self, iteration: Iteration, fetch: Fetch, units: list[Any], alone: bool) -> list[Any]:
        """Fetch some of the units with threads and see how long that takes; none, if there are too few."""
        most = max(self._num_workers, 2 * _LEAST_FOR_A_TRIAL)
        units = units[:most]
        ahead = self._ahead(iteration, fetch, alone)[: most - len(units)]
        fetches = len(units) + len(ahead)
        if iteration.is_busy() or fetches < _LEAST_FOR_A_TRIAL:
            return []
        began = time.perf_counter()
        tasks, later = iteration.start(self.here().runner(False), fetch, units, ahead)
        for task in (*tasks, *later):
            task.wait()
        self.judge.tried(time.perf_counter() - began, fetches)
        return self._results(tasks)

    def _go_inline(self) -> None:
        """End the threads, and say why."""
        self.here().close()
        if not self._warned:
            self._warned = True
            warn(f"AsyncPrefetchDataset fetches without threads: {self.judge.why}")


def _whole_batch(source: Any, indices: Any) -> Any:
    return source.__getitems__(indices)


def _has_batches(source: Any) -> bool:
    """Whether the dataset fetches batches in a way of its own; a plain Subset only loops over its source."""
    if type(source) is Subset:
        return _has_batches(source.dataset)
    return callable(getattr(source, "__getitems__", None))
