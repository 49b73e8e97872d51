"""`AsyncPrefetchDataset` over an IterableDataset: one thread reads it ahead of the loader."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset

from unstarve import words
from unstarve.fixes.datasets.prefetch.judge import Fetch, cpu_share, timed, warn
from unstarve.fixes.datasets.prefetch.prefetch_dataset import AsyncPrefetchDataset
from unstarve.fixes.datasets.prefetch.reader import ITEMS_TO_TIME, ReadAhead

_COMPUTES_FROM = 0.7
_WORTH_HANDING_OVER_S = 0.7e-3
"""Handing an item over costs some 20 µs: less than 3 % of an item that takes longer than this."""


class AsyncPrefetchStream(AsyncPrefetchDataset, IterableDataset[Any]):
    """What `AsyncPrefetchDataset` makes of an IterableDataset: read by one thread, `queue_size` items ahead.

    All of one iteration is read by the same thread, because a connection that the source opens may belong to
    it. Where items are computed faster than they can be handed over, the next iteration has no thread.
    """

    def _prepare(self) -> None:
        self._threaded = True
        self._why = "nothing was read yet"

    def __iter__(self) -> Iterator[Any]:
        if self.queue_size == 0 or not self._threaded:
            return self._inline()
        return self._read_ahead()

    def __getitem__(self, index: Any) -> Any:
        raise TypeError(f"{type(self.dataset).__name__} is read in order: it has no sample {index!r}")

    def __getitems__(self, indices: list[Any]) -> Any:
        raise TypeError(f"{type(self.dataset).__name__} is read in order: it has no samples {indices!r}")

    def explain(self) -> str:
        """Say how items are read now, and why."""
        return f"{'a reading thread' if self._threaded else 'no thread'}: {self._why}"

    def close(self) -> None:
        """Nothing to end: each iteration ends its own thread."""

    def _read_ahead(self) -> Iterator[Any]:
        reader = ReadAhead(self.dataset, self.queue_size)
        yield from islice(reader, ITEMS_TO_TIME)
        self._conclude(reader.timed)
        yield from reader

    def _inline(self) -> Iterator[Any]:
        iterator = iter(self.dataset)
        took: list[Fetch] = []
        for _ in range(ITEMS_TO_TIME):
            try:
                item, one = timed(iterator.__next__)
            except StopIteration:
                return
            took.append(one)
            yield item
        self._conclude(took)
        yield from iterator

    def _conclude(self, took: list[Fetch]) -> None:
        """Decide about the next iteration by what the first items of this one took."""
        if not took:
            return
        was_threaded = self._threaded
        share = cpu_share(took)
        item_s = sum(one.busy_s for one in took) / len(took)
        self._threaded = share < _COMPUTES_FROM or item_s >= _WORTH_HANDING_OVER_S
        self._why = f"{words.percent(share)} of the {words.duration(item_s)} that an item takes is computing"
        if was_threaded and not self._threaded:
            warn(f"AsyncPrefetchDataset will read without a thread: {self._why}")
