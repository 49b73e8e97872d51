"""`AsyncPrefetchDataset`: the same dataset, with background threads that fetch what comes next."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

from torch.utils.data import Dataset, IterableDataset, Sampler

from unstarve.fixes.datasets.prefetch.fetcher import Fetcher
from unstarve.fixes.datasets.prefetch.judge import Mode
from unstarve.fixes.datasets.prefetch.order import Followed, Order

# What loaders ask for to get around `__getitem__`, which a subclass may have changed.
_NOT_PASSED_ON = ("dataset", "rows", "read_batch", "releases_gil")


class AsyncPrefetchDataset(Dataset[Any]):
    """The same samples in the same order, fetched by `num_workers` threads before they are asked for.

    For samples that are waited for: remote files, databases, slow disks. `dataset[i]` is called from several
    threads at once, so the dataset must bear that: no file position shared between calls, no connection that
    belongs to one thread; random numbers are drawn in the order in which threads get to them. An `async def
    __getitem__`, or one that returns a coroutine, is awaited in one event loop, `num_workers` at a time. A
    dataset with a `__getitems__` of its own is asked for whole batches, at least one ahead. An
    IterableDataset is read by one thread.

    A batch's samples are fetched side by side, and up to `queue_size` samples of what comes next are fetched
    meanwhile, in the sampler's order. That order is found by itself in a loader without worker processes that
    uses one of torch's samplers, through `Subset` and `ConcatDataset` too; another sampler is wrapped in
    `dataset.follow(sampler)`. A steady stride, as in a plain loop or in a loader's worker, is noticed. An
    exception is raised where its sample is asked for.

    Where fetching is computing in Python, threads would make it slower: that is measured, said in a warning,
    and samples are fetched without threads from then on. `explain()` says what is done now, and why.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> AsyncPrefetchDataset:
        """Make an IterableDataset of a source that is one."""
        source = args[0] if args else kwargs.get("dataset")
        if cls is AsyncPrefetchDataset and isinstance(source, IterableDataset):
            from unstarve.fixes.datasets.prefetch.stream import AsyncPrefetchStream

            return super().__new__(AsyncPrefetchStream)
        return super().__new__(cls)

    def __init__(self, dataset: Any, queue_size: int = 10, num_workers: int = 2) -> None:
        if operator.index(queue_size) < 0:
            raise ValueError(f"queue_size must be 0 (nothing ahead of a batch) or more, not {queue_size}")
        if operator.index(num_workers) < 1:
            raise ValueError(f"num_workers must be at least 1, not {num_workers}")
        self.dataset = dataset
        self.queue_size = queue_size
        self.num_workers = num_workers
        self._prepare()

    def _prepare(self) -> None:
        """Set up what belongs to this process and is not pickled."""
        self._fetcher = Fetcher(self.dataset, self.queue_size, self.num_workers)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        fetcher = self._fetcher
        if fetcher.judge.mode is Mode.INLINE:
            return fetcher.judge.inline(fetcher.plain_sample, index)
        return fetcher.one(fetcher.here().iteration(self), index)

    def __getitems__(self, indices: list[Any]) -> Any:
        """Return the samples of a batch, as torch's loader asks for them."""
        fetcher = self._fetcher
        if fetcher.judge.mode is Mode.INLINE:
            return fetcher.judge.inline(fetcher.plain_batch, indices)
        return fetcher.batch(fetcher.here().iteration(self), indices)

    def __iter__(self) -> Iterator[Any]:
        fetcher = self._fetcher
        try:
            order = Order(range(len(self)))
        except (TypeError, NotImplementedError):  # no length: until an IndexError, as Python does it
            order = Order(count())
        iteration = fetcher.here().begin(order, batches=False)
        for index in order:
            try:
                if fetcher.judge.mode is Mode.INLINE:
                    sample = fetcher.judge.inline(fetcher.plain_sample, index)
                else:
                    sample = fetcher.one(iteration, index)
            except IndexError:
                return
            yield sample

    def follow(self, sampler: Iterable[Any]) -> Sampler[Any]:
        """Return the sampler, or batch sampler, in a form that lets this dataset know what comes next.

        For samplers that are not torch's own, given to a loader without worker processes. The sampler is
        pulled ahead, so it must not depend on what happens in training meanwhile.
        """
        return Followed(sampler, self._begin)

    def _begin(self, order: Order) -> None:
        self._fetcher.here().follow(order)

    def explain(self) -> str:
        """Say how samples are fetched now, and why."""
        fetcher = self._fetcher
        if fetcher.asynchronous:
            return f"event loop: samples are coroutines, {self.num_workers} of them awaited at a time"
        how = {Mode.THREADS: f"{self.num_workers} threads", Mode.INLINE: "no threads"}
        why_no_order = fetcher.here().why_no_order if fetcher.judge.mode is Mode.THREADS else ""
        unknown = f"; nothing beyond a batch, for {why_no_order}" if why_no_order else ""
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
