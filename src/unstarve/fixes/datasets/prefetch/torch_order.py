"""The order of the torch loader that is asking right now, found without the user's help.

A dataset is not told about samplers. But when torch's single-process loader asks for samples, its iterator is
on the call stack, and its sampler's iterator can be put behind an `Order`. That is done only for torch's own
samplers, of which it is known that pulling them early changes nothing: not what they give, nor what they draw
from a generator that others share. Everything here is private to torch: where it looks different, there is
no order to be found, and samples are fetched ahead within each batch alone.
"""

from __future__ import annotations

import bisect
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
    dataloader,
)
from torch.utils.data.distributed import DistributedSampler

from unstarve.fixes.datasets.prefetch.order import Order

Path = Callable[[Any], Any]
"""From an index that the sampler gave to this dataset's own; `NOT_OURS` for another dataset's."""

NOT_OURS = object()

_FRAMES_TO_LOOK_AT = 12
_ITERATOR = getattr(dataloader, "_SingleProcessDataLoaderIter", None)
_DRAWS_ALL_AT_ONCE = (SequentialSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)


def asking_loader() -> tuple[Any, Any]:
    """Return the torch iterator that is asking for samples on this thread, and what its sampler gave last."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_FRAMES_TO_LOOK_AT):
        if frame is None:
            break
        if frame.f_code.co_name == "_next_data" and frame.f_globals.get("__name__") == dataloader.__name__:
            iterator = frame.f_locals.get("self")
            # A subclass may save its sampler's state, which pulling ahead would falsify.
            return (iterator, frame.f_locals.get("index")) if type(iterator) is _ITERATOR else (None, None)
        frame = frame.f_back
    return None, None


def order_of(iterator: Any, item: Any) -> tuple[Order | None, str]:
    """Return the order that the iterator follows, and why there is none; `item` was given last.

    The iterator goes on by it, with the same items in the same order.
    """
    try:
        items, sampler = iterator._sampler_iter, iterator._index_sampler
    except AttributeError:
        return None, "this torch keeps its sampler elsewhere"
    if isinstance(items, Order):
        return items, ""
    most, why_not = _pull_limit(sampler)
    if why_not:
        return None, why_not
    order = Order(items, most)
    order.given, order.current = iterator._num_yielded + 1, item  # given before there was an order
    iterator._sampler_iter = order
    return order, ""


def _pull_limit(sampler: Any) -> tuple[int | None, str]:
    """How many items may be pulled early in all (None: all), and why none."""
    size = 1
    if type(sampler) is BatchSampler:
        size, sampler = sampler.batch_size, sampler.sampler
    if type(sampler) in _DRAWS_ALL_AT_ONCE:
        return None, ""
    if type(sampler) is not RandomSampler:
        name = type(sampler).__name__
        return 0, f"{name} may depend on when it is asked; wrap it in dataset.follow(sampler) if it does not"
    if sampler.generator is None:  # it makes a generator of its own when it starts
        return None, ""
    if sampler.replacement or sampler.num_samples > len(sampler.data_source):
        return 0, "RandomSampler draws from your generator as it goes"
    # At its end it draws once more, which must not happen early: keep away from the last item.
    return sampler.num_samples // size, ""


def path_to(outer: Any, dataset: Any) -> Path | None:
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


def _into_subset(outer: Subset[Any], inner: Path) -> Path:
    indices = outer.indices
    return lambda index: inner(indices[index])


def _into_parts(outer: ConcatDataset[Any], parts: list[Path | None]) -> Path:
    ends = outer.cumulative_sizes

    def path(index: Any) -> Any:
        position = index + ends[-1] if index < 0 else index
        at = bisect.bisect_right(ends, position)
        inner = parts[at] if at < len(parts) else None
        return NOT_OURS if inner is None else inner(position - (ends[at - 1] if at else 0))

    return path
