"""How the samples of one dataset are fetched: with threads or without, and which of them ahead."""

from __future__ import annotations

import inspect
import operator
import os
import time
import weakref
from functools import partial
from typing import Any

from torch.utils.data import Subset, get_worker_info

from unstarve.fixes.datasets.prefetch.fetch_threads import (
    EventLoop,
    FetchRunner,
    FetchTask,
    ThreadPool,
    is_awaitable,
)
from unstarve.fixes.datasets.prefetch.prefetch_iteration import Fetch, Iteration, drop
from unstarve.fixes.datasets.prefetch.sampler_order import (
    IndexPath,
    PulledOrder,
    asking_loader,
    order_of,
    path_to,
)
from unstarve.fixes.datasets.prefetch.thread_judge import FetchMode, ThreadJudge, warn

_MIN_TRIAL_FETCHES = 4


class Fetcher:
    """Fetches the samples of one dataset. After a fork, each process has its own threads."""

    def __init__(self, source: Any, queue_size: int, num_workers: int) -> None:
        self.judge = ThreadJudge(num_workers)
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
        """Return this process's background work; a forked process starts its own."""
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
        """Return the samples of a batch as torch's loader would fetch them."""
        if self._many is not None:
            return self._many(indices)
        source = self._source
        return [source[index] for index in indices]

    def _fetched(
        self, iteration: Iteration, fetch: Fetch, units: list[Any], indices: Any, alone: bool
    ) -> list[Any]:
        """Return the values of the units, and start to fetch what comes next."""
        judge = self.judge
        iteration.see(indices, alone)
        done: list[Any] = []
        while judge.mode is FetchMode.PROBE and not self.asynchronous and len(done) < len(units):
            done.append(self._probed(iteration, fetch, units[len(done)]))
        if judge.mode is FetchMode.TRIAL and not self.asynchronous:
            done += self._tried(iteration, fetch, units[len(done) :], alone)
        if judge.mode is FetchMode.INLINE:
            self._go_inline()
        rest = units[len(done) :]
        if judge.mode is FetchMode.THREADS or self.asynchronous:
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

    def _results(self, tasks: list[FetchTask]) -> list[Any]:
        try:
            values = [task.result() for task in tasks]
        except BaseException:  # also Ctrl-C: nobody asks for the rest
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
            task = FetchTask(lambda _: value, unit)
            self.here().runner(True).submit(task)
        return task.result()

    def _tried(self, iteration: Iteration, fetch: Fetch, units: list[Any], alone: bool) -> list[Any]:
        """Fetch some of the units with threads and measure it; fetch none if there are too few."""
        most = max(self._num_workers, 2 * _MIN_TRIAL_FETCHES)
        units = units[:most]
        ahead = self._ahead(iteration, fetch, alone)[: most - len(units)]
        fetches = len(units) + len(ahead)
        if iteration.is_busy() or fetches < _MIN_TRIAL_FETCHES:
            return []
        began = time.perf_counter()
        tasks, later = iteration.start(self.here().runner(False), fetch, units, ahead)
        for task in (*tasks, *later):
            task.wait()
        self.judge.tried(time.perf_counter() - began, fetches)
        return self._results(tasks)

    def _go_inline(self) -> None:
        """End the threads and warn."""
        self.here().close()
        if not self._warned:
            self._warned = True
            warn(f"AsyncPrefetchDataset fetches without threads: {self.judge.why}")


def _whole_batch(source: Any, indices: Any) -> Any:
    return source.__getitems__(indices)


def _has_batches(source: Any) -> bool:
    """Whether the dataset itself fetches batches; a plain Subset only loops over its source."""
    if type(source) is Subset:
        return _has_batches(source.dataset)
    return callable(getattr(source, "__getitems__", None))


class Background:
    """Threads and iterations of one process. Neither threads nor event loops survive a fork."""

    def __init__(self, num_workers: int) -> None:
        self.process = os.getpid()
        self.why_no_order = ""
        """Why the sampler of the last asking loader cannot be followed; empty if it can."""
        self._num_workers = num_workers
        self._pool = ThreadPool(num_workers)
        self._loop: EventLoop | None = None
        self._iterations: weakref.WeakKeyDictionary[PulledOrder, Iteration] = weakref.WeakKeyDictionary()
        self._followed: weakref.ref[PulledOrder] | None = None
        self._guessing = Iteration()

    def runner(self, asynchronous: bool) -> FetchRunner:
        """Return the runner of fetches: threads, or an event loop in its own thread."""
        if not asynchronous:
            return self._pool
        if self._loop is None:
            self._loop = EventLoop(self._num_workers)
        return self._loop

    def begin(
        self, order: PulledOrder, path: IndexPath | None = None, batches: bool | None = None
    ) -> Iteration:
        """Return the iteration that follows this order."""
        iteration = self._iterations.get(order)
        if iteration is None:
            iteration = self._iterations[order] = Iteration(order, path, batches)
        return iteration

    def follow(self, order: PulledOrder) -> None:
        """Use this order for the next access, unless a loader with its own order asks."""
        self._followed = weakref.ref(order)
        self.begin(order)

    def iteration(self, dataset: Any) -> Iteration:
        """Return the iteration that is asking `dataset` for samples on this thread."""
        if get_worker_info() is not None:
            self.why_no_order = "the sampler is in another process"
            return self._guessing
        iterator, item = asking_loader()
        path = None if iterator is None else path_to(iterator._dataset, dataset)
        if path is not None:
            order, self.why_no_order = order_of(iterator, item)
            if order is not None:
                return self.begin(order, path, iterator._auto_collation)
        followed = None if self._followed is None else self._followed()
        if followed is None:
            return self._guessing
        self.why_no_order = ""
        iteration = self.begin(followed)
        iteration.path = path
        return iteration

    def close(self) -> None:
        """End the threads. Takes no lock, so that a finalizer may call it."""
        self._guessing.abandon()
        for iteration in tuple(self._iterations.values()):
            iteration.abandon()
        self._pool.leave()
        if self._loop is not None:
            self._loop.close()
