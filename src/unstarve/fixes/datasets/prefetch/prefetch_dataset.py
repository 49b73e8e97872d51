"""`AsyncPrefetchDataset`: the same dataset, with background threads that fetch what comes next."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from itertools import count, islice
from typing import Any

from torch.utils.data import Dataset, IterableDataset, Sampler

from unstarve import words
from unstarve.fixes.datasets.prefetch.fetch_threads import ITEMS_TO_TIME, IterableReader
from unstarve.fixes.datasets.prefetch.sample_fetcher import Fetcher
from unstarve.fixes.datasets.prefetch.sampler_order import FollowedSampler, PulledOrder
from unstarve.fixes.datasets.prefetch.thread_judge import FetchMode, FetchTime, cpu_share, timed, warn

# Attributes with which loaders bypass `__getitem__`, which a subclass may have overridden.
_NOT_PASSED_ON = ("dataset", "rows", "read_batch", "releases_gil")


class AsyncPrefetchDataset(Dataset[Any]):
    """The same samples in the same order, fetched by `num_workers` threads before they are asked for.

    For samples that take time to arrive: remote files, databases, slow disks. `dataset[i]` is called from
    several threads at once, so the dataset must be thread-safe: no file position shared between calls, no
    connection bound to one thread. Random numbers are drawn in the order in which threads run. An `async def
    __getitem__`, or one that returns a coroutine, is awaited in one event loop, `num_workers` at a time. A
    dataset with its own
    `__getitems__` is asked for whole batches, at least one ahead. An IterableDataset is read by one thread.

    The samples of a batch are fetched in parallel, and up to `queue_size` of the next samples with them, in
    the sampler's order. That order is found automatically in a loader without worker processes that uses one
    of torch's samplers, also through `Subset` and `ConcatDataset`; wrap any other sampler in
    `dataset.follow(sampler)`. A steady stride, as in a plain loop or in a loader's worker, is detected. An
    exception is raised when its sample is asked for.

    If fetching is computing in Python, threads would make it slower: this is measured, a warning says so, and
    samples are fetched without threads from then on. `explain()` says what happens now, and why.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> AsyncPrefetchDataset:
        """Return an IterableDataset for a source that is one."""
        source = args[0] if args else kwargs.get("dataset")
        if cls is AsyncPrefetchDataset and isinstance(source, IterableDataset):
            return super().__new__(AsyncPrefetchStream)
        return super().__new__(cls)

    def __init__(self, dataset: Any, queue_size: int = 10, num_workers: int = 2) -> None:
        if operator.index(queue_size) < 0:
            raise ValueError(f"queue_size must be >= 0 (0: fetch nothing ahead of a batch), got {queue_size}")
        if operator.index(num_workers) < 1:
            raise ValueError(f"num_workers must be >= 1, got {num_workers}")
        self.dataset = dataset
        self.queue_size = queue_size
        self.num_workers = num_workers
        self._prepare()

    def _prepare(self) -> None:
        """Set up the state of this process, which is not pickled."""
        self._fetcher = Fetcher(self.dataset, self.queue_size, self.num_workers)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        fetcher = self._fetcher
        if fetcher.judge.mode is FetchMode.INLINE:
            return fetcher.judge.inline(fetcher.plain_sample, index)
        return fetcher.one(fetcher.here().iteration(self), index)

    def __getitems__(self, indices: list[Any]) -> Any:
        """Return the samples of a batch, as torch's loader asks for them."""
        fetcher = self._fetcher
        if fetcher.judge.mode is FetchMode.INLINE:
            return fetcher.judge.inline(fetcher.plain_batch, indices)
        return fetcher.batch(fetcher.here().iteration(self), indices)

    def __iter__(self) -> Iterator[Any]:
        fetcher = self._fetcher
        try:
            order = PulledOrder(range(len(self)))
        except (TypeError, NotImplementedError):  # no length: until an IndexError, as Python iterates
            order = PulledOrder(count())
        iteration = fetcher.here().begin(order, batches=False)
        for index in order:
            try:
                if fetcher.judge.mode is FetchMode.INLINE:
                    sample = fetcher.judge.inline(fetcher.plain_sample, index)
                else:
                    sample = fetcher.one(iteration, index)
            except IndexError:
                return
            yield sample

    def follow(self, sampler: Iterable[Any]) -> Sampler[Any]:
        """Return a wrapped sampler, or batch sampler, that tells this dataset what comes next.

        For samplers that are not torch's own, in a loader without worker processes. The sampler is pulled
        ahead, so it must not depend on what happens in training meanwhile.
        """
        return FollowedSampler(sampler, self._begin)

    def _begin(self, order: PulledOrder) -> None:
        self._fetcher.here().follow(order)

    def explain(self) -> str:
        """Say how samples are fetched now, and why."""
        fetcher = self._fetcher
        if fetcher.asynchronous:
            return f"event loop: samples are coroutines, {self.num_workers} are awaited at a time"
        how = {FetchMode.THREADS: f"{self.num_workers} threads", FetchMode.INLINE: "no threads"}
        why_no_order = fetcher.here().why_no_order if fetcher.judge.mode is FetchMode.THREADS else ""
        unknown = f"; nothing is fetched beyond a batch: {why_no_order}" if why_no_order else ""
        return f"{how.get(fetcher.judge.mode, 'measuring')}: {fetcher.judge.why}{unknown}"

    def close(self) -> None:
        """End the threads and drop what they fetched; the next access starts them again."""
        self._fetcher.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in _NOT_PASSED_ON:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.dataset, name)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_fetcher"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()


_COMPUTES_FROM = 0.7
_MIN_THREADED_ITEM_S = 0.7e-3
"""Passing an item between threads costs some 20 µs: less than 3% of an item that takes longer than this."""


class AsyncPrefetchStream(AsyncPrefetchDataset, IterableDataset[Any]):
    """`AsyncPrefetchDataset` for an IterableDataset: one thread reads up to `queue_size` items ahead.

    One thread reads all of an iteration, because a connection that the source opens may be bound to it. If
    items are computed faster than they can be passed between threads, the next iteration has no thread.
    """

    def _prepare(self) -> None:
        self._threaded = True
        self._why = "nothing was read yet"

    def __iter__(self) -> Iterator[Any]:
        if self.queue_size == 0 or not self._threaded:
            return self._inline()
        return self._read_ahead()

    def __getitem__(self, index: Any) -> Any:
        raise TypeError(f"{type(self.dataset).__name__} is an IterableDataset: it has no sample {index!r}")

    def __getitems__(self, indices: list[Any]) -> Any:
        raise TypeError(f"{type(self.dataset).__name__} is an IterableDataset: it has no samples {indices!r}")

    def explain(self) -> str:
        """Say how items are read now, and why."""
        return f"{'a reading thread' if self._threaded else 'no thread'}: {self._why}"

    def close(self) -> None:
        """Do nothing: each iteration ends its own thread."""

    def _read_ahead(self) -> Iterator[Any]:
        reader = IterableReader(self.dataset, self.queue_size)
        yield from islice(reader, ITEMS_TO_TIME)
        self._conclude(reader.timed)
        yield from reader

    def _inline(self) -> Iterator[Any]:
        iterator = iter(self.dataset)
        took: list[FetchTime] = []
        for _ in range(ITEMS_TO_TIME):
            try:
                item, one = timed(iterator.__next__)
            except StopIteration:
                return
            took.append(one)
            yield item
        self._conclude(took)
        yield from iterator

    def _conclude(self, took: list[FetchTime]) -> None:
        """Decide about the next iteration by how long the first items of this one took."""
        if not took:
            return
        was_threaded = self._threaded
        share = cpu_share(took)
        item_s = sum(one.busy_s for one in took) / len(took)
        self._threaded = share < _COMPUTES_FROM or item_s >= _MIN_THREADED_ITEM_S
        self._why = f"{words.percent(share)} of the {words.duration(item_s)} per item is computing"
        if was_threaded and not self._threaded:
            warn(f"AsyncPrefetchDataset will read without a thread: {self._why}")
