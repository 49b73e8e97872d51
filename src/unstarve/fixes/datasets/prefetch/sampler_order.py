"""Which indices come next: from a sampler pulled a little ahead, or guessed from a steady stride.

A dataset is not told about samplers. But when torch's single-process loader asks for samples, its iterator is
on the call stack, and its sampler's iterator can be wrapped in a `PulledOrder`. That is done only for torch's
own samplers, for which pulling early is known to change nothing: neither the indices nor the numbers drawn
from a shared generator. All of this uses private parts of torch: in a torch that looks different, no order is
found, and samples are fetched ahead only within each batch.
"""

from __future__ import annotations

import bisect
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any

from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
    dataloader,
)
from torch.utils.data.distributed import DistributedSampler

from unstarve.marks import PullableIndices


class PulledOrder(Iterator[Any]):
    """An iterator over a sampler that can look ahead.

    It yields the same items and raises the same errors at the same places. Items are pulled early only by
    `ahead`, never from another thread, and never more than `most` in all; None means no limit.
    """

    def __init__(self, items: Iterable[Any], most: int | None = None) -> None:
        self._items = iter(items)
        self._most = most
        self._pulled: deque[Any] = deque()
        self._ended = False
        self._error: Exception | None = None
        self.current: Any = None
        """The last item."""
        self.given = 0

    def __next__(self) -> Any:
        if self._pulled:
            self.current = self._pulled.popleft()
        elif self._error is not None:
            error, self._error = self._error, None
            raise error
        else:
            self.current = next(self._items)
        self.given += 1
        return self.current

    def ahead(self) -> Iterator[Any]:
        """Yield the next items in order, pulling each when it is looked at."""
        at = 0
        while at < len(self._pulled) or self._pull():
            yield self._pulled[at]
            at += 1

    def _pull(self) -> bool:
        if self._ended or (self._most is not None and self.given + len(self._pulled) >= self._most):
            return False
        try:
            self._pulled.append(next(self._items))
        except StopIteration:
            self._ended = True
        except Exception as error:  # raised in its turn, after the items before it
            self._ended, self._error = True, error
        return not self._ended


class FollowedSampler(Sampler[Any]):
    """A sampler, or batch sampler, that tells a dataset about each of its iterations."""

    def __init__(self, sampler: Iterable[Any], begin: Callable[[PulledOrder], None]) -> None:
        self._sampler = sampler
        self._begin = begin

    def __iter__(self) -> Iterator[Any]:
        order = PulledOrder(self._sampler)
        self._begin(order)
        return order

    def __len__(self) -> int:
        return len(self._sampler)  # type: ignore[arg-type] # a TypeError if the sampler has no length

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_sampler":
            raise AttributeError(name)
        return getattr(self._sampler, name)


class StrideGuess:
    """Guesses the next accesses from a steady stride of indices or batches."""

    def __init__(self) -> None:
        self._last: list[int] = []
        self._step = 0
        self._sure = False

    def see(self, indices: Sequence[Any]) -> None:
        """Note what is asked for."""
        now = [i for i in indices if type(i) is int]
        if not now or len(now) != len(indices):
            self._last, self._step, self._sure = [], 0, False
            return
        step = now[0] - self._last[0] if self._last else 0
        steady = len(self._last) >= len(now) and all(
            b - a == step for a, b in zip(self._last, now, strict=False)
        )
        # Two single indices always form a stride: wait for a third.
        self._sure = steady and step != 0 and (len(now) > 1 or step == self._step)
        self._last, self._step = now, step

    def ahead(self, count: int | None) -> Iterator[list[int]]:
        """Yield the next accesses, endlessly or within a dataset of `count` samples."""
        if not self._sure:
            return
        batch = self._last
        while batch:
            batch = [
                i + self._step
                for i in batch
                if i + self._step >= 0 and (count is None or i + self._step < count)
            ]
            yield batch


IndexPath = Callable[[Any], Any]
"""From the sampler's index to this dataset's; `NOT_OURS` for an index of another dataset."""

NOT_OURS = object()

_FRAMES_TO_LOOK_AT = 12
_ITERATOR = getattr(dataloader, "_SingleProcessDataLoaderIter", None)
_DRAWS_ALL_AT_ONCE = (SequentialSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)


def asking_loader() -> tuple[Any, Any]:
    """Return the torch iterator that is asking for samples on this thread, and its sampler's last item."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_FRAMES_TO_LOOK_AT):
        if frame is None:
            break
        if frame.f_code.co_name == "_next_data" and frame.f_globals.get("__name__") == dataloader.__name__:
            iterator = frame.f_locals.get("self")
            # A subclass may save its sampler's state, which pulling ahead would change.
            pullable = type(iterator) is _ITERATOR or isinstance(iterator, PullableIndices)
            return (iterator, frame.f_locals.get("index")) if pullable else (None, None)
        frame = frame.f_back
    return None, None


def order_of(iterator: Any, item: Any) -> tuple[PulledOrder | None, str]:
    """Return the iterator's order, or None and the reason; `item` is its last item.

    The iterator uses the order from here on, with the same items in the same order.
    """
    try:
        items, sampler = iterator._sampler_iter, iterator._index_sampler
    except AttributeError:
        return None, "this version of torch keeps its sampler elsewhere"
    if isinstance(items, PulledOrder):
        return items, ""
    most, why_not = _pull_limit(sampler)
    if why_not:
        return None, why_not
    order = PulledOrder(items, most)
    order.given, order.current = iterator._num_yielded + 1, item  # yielded before there was an order
    iterator._sampler_iter = order
    return order, ""


def _pull_limit(sampler: Any) -> tuple[int | None, str]:
    """Return how many items may be pulled early in all (None: all), or why none."""
    size = 1
    if type(sampler) is BatchSampler:
        size, sampler = sampler.batch_size, sampler.sampler
    if type(sampler) in _DRAWS_ALL_AT_ONCE:
        return None, ""
    if type(sampler) is not RandomSampler:
        name = type(sampler).__name__
        return 0, f"{name} may depend on when it is asked; if it does not, wrap it in dataset.follow(sampler)"
    if sampler.generator is None:  # it makes its own generator when it starts
        return None, ""
    if sampler.replacement or sampler.num_samples > len(sampler.data_source):
        return 0, "RandomSampler draws from your generator as it goes"
    # At its end it draws once more, which must not happen early: never pull the last item.
    return sampler.num_samples // size, ""


def path_to(outer: Any, dataset: Any) -> IndexPath | None:
    """Return how the loader's dataset `outer` reaches `dataset`, through subsets and concatenations."""
    if outer is dataset:
        return _same
    if type(outer) is Subset:
        inner = path_to(outer.dataset, dataset)
        return None if inner is None else _into_subset(outer, inner)
    if type(outer) is ConcatDataset:
        parts = [path_to(part, dataset) for part in outer.datasets]
        return _into_parts(outer, parts) if any(parts) else None
    return None


def _same(index: Any) -> Any:
    return index


def _into_subset(outer: Subset[Any], inner: IndexPath) -> IndexPath:
    indices = outer.indices
    return lambda index: inner(indices[index])


def _into_parts(outer: ConcatDataset[Any], parts: list[IndexPath | None]) -> IndexPath:
    ends = outer.cumulative_sizes

    def path(index: Any) -> Any:
        position = index + ends[-1] if index < 0 else index
        at = bisect.bisect_right(ends, position)
        inner = parts[at] if at < len(parts) else None
        return NOT_OURS if inner is None else inner(position - (ends[at - 1] if at else 0))

    return path
