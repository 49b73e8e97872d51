"""The indices of an epoch, in the order and with the random draws of torch's samplers.

torch's samplers give one Python integer after the other. For the samplers known here, whole arrays of indices
are drawn instead, by the same calls on the same generators; any other sampler is iterated as it is.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from unstarve.fixes.loader.resume.index_replay import RestOfEpoch

Indices = NDArray[np.int64]

_SEQUENTIAL_CHUNK = 65_536


@dataclass(frozen=True)
class IndexOrder:
    """The indices of one epoch. `whole`: each item of `source` is a batch; otherwise a chunk to be cut."""

    source: Iterator[Any]
    whole: bool
    batch_size: int
    drop_last: bool


def order_of(loader: DataLoader[Any], batches: Iterator[Any], *, beyond: int = 0) -> IndexOrder:
    """Return the indices of an epoch that begins now; `batches` iterates the loader's own batch sampler.

    Without workers nothing is drawn before the first batch is asked for, and then only what it needs. With
    workers torch draws the indices of all prefetched batches at once, and so does this, except for the
    `beyond` batches that the caller itself asks for ahead.
    """
    ahead = max(loader.num_workers * (loader.prefetch_factor or 0) - beyond, 0)
    chunks = None if isinstance(batches, RestOfEpoch) else _known_order(loader)
    if chunks is None:
        source = IndexPrefetch(batches, ahead) if ahead else batches
        return IndexOrder(source, True, max(loader.batch_size or 1, 1), loader.drop_last)
    sampler: Any = loader.batch_sampler
    size, drop_last = sampler.batch_size, sampler.drop_last
    if not ahead:
        return IndexOrder(chunks, False, size, drop_last)
    if type(sampler.sampler) is RandomSampler and sampler.sampler.generator is not None:
        # The only sampler that draws more than once from a generator that others can see.
        return IndexOrder(IndexPrefetch(BatchCutter(chunks, size, drop_last), ahead), True, size, drop_last)
    return IndexOrder(itertools.chain(list(itertools.islice(chunks, 1)), chunks), False, size, drop_last)


def sequential_count(loader: DataLoader[Any]) -> int | None:
    """Return how many samples are asked for in the dataset's order; None if the order is another."""
    sampler: Any = loader.batch_sampler
    if type(sampler) is BatchSampler and type(sampler.sampler) is SequentialSampler:
        return len(sampler.sampler.data_source)
    return None


def _known_order(loader: DataLoader[Any]) -> Iterator[Indices] | None:
    batch_sampler: Any = loader.batch_sampler
    if type(batch_sampler) is not BatchSampler:
        return None
    sampler: Any = batch_sampler.sampler
    if type(sampler) is SequentialSampler:
        step = max(_SEQUENTIAL_CHUNK // batch_sampler.batch_size, 1) * batch_sampler.batch_size
        return _in_sequence(sampler, step)
    kind = type(sampler)
    if kind not in _DRAWS or not _draws_as_torch_does(kind):  # type: ignore[arg-type] # a class is hashable
        return None
    drawn = _DRAWS[kind](sampler)
    return None if drawn is None else map(_as_indices, drawn)


def _in_sequence(sampler: Any, step: int) -> Iterator[Indices]:
    count = len(sampler.data_source)
    for first in range(0, count, step):
        yield np.arange(first, min(first + step, count), dtype=np.int64)


def _random(sampler: Any) -> Iterator[torch.Tensor]:
    """Draw the numbers of `RandomSampler.__iter__` at the same moments."""
    count = len(sampler.data_source)
    generator = sampler.generator
    if generator is None:
        seed = int(torch.empty((), dtype=torch.int64).random_().item())
        generator = torch.Generator()
        generator.manual_seed(seed)
    if sampler.replacement:
        for size in [32] * (sampler.num_samples // 32) + [sampler.num_samples % 32]:
            yield torch.randint(high=count, size=(size,), dtype=torch.int64, generator=generator)
        return
    for _ in range(sampler.num_samples // count):
        yield torch.randperm(count, generator=generator)
    rest = sampler.num_samples % count
    if rest or sampler.generator is not None:  # torch draws once more even without a rest; others can see it
        yield torch.randperm(count, generator=generator)[:rest]


def _subset_random(sampler: Any) -> Iterator[torch.Tensor] | None:
    indices = _integers(sampler.indices)
    return None if indices is None else _shuffled(torch.from_numpy(indices), sampler.generator)


def _shuffled(indices: torch.Tensor, generator: torch.Generator | None) -> Iterator[torch.Tensor]:
    yield indices[torch.randperm(len(indices), generator=generator).cpu()]


def _weighted(sampler: Any) -> Iterator[torch.Tensor]:
    yield torch.multinomial(
        sampler.weights, sampler.num_samples, sampler.replacement, generator=sampler.generator
    )


_DRAWS: dict[type[Any], Callable[[Any], Iterator[torch.Tensor] | None]] = {
    RandomSampler: _random,
    SubsetRandomSampler: _subset_random,
    WeightedRandomSampler: _weighted,
}


@functools.cache
def _draws_as_torch_does(kind: type[Any]) -> bool:
    """Whether this version of torch draws as we do: same indices, same generator state afterwards."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        for generator in (None, torch.Generator()):
            used = torch.default_generator if generator is None else generator
            for sampler in _samples_of(kind, generator):
                before = used.get_state()
                theirs, after = list(sampler), used.get_state()
                used.set_state(before)
                ours = torch.cat(list(_DRAWS[kind](sampler) or ())).tolist()
                if ours != theirs or not torch.equal(used.get_state(), after):
                    return False
    return True


def _samples_of(kind: type[Any], generator: torch.Generator | None) -> list[Any]:
    if kind is RandomSampler:
        settings: list[dict[str, Any]] = [{}, {"num_samples": 16}, {"replacement": True, "num_samples": 40}]
        return [RandomSampler(range(7), generator=generator, **setting) for setting in settings]
    if kind is SubsetRandomSampler:
        return [SubsetRandomSampler([3, 1, 4], generator=generator)]
    return [WeightedRandomSampler([1.0, 2.0, 3.0], 5, generator=generator)]


def _as_indices(drawn: torch.Tensor) -> Indices:
    indices: Indices = drawn.numpy(force=True)
    return indices


def _integers(values: Any) -> Indices | None:
    """Return a one-dimensional int64 array, or None if that would change the numbers."""
    array = np.asarray(values)
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iu" or array.dtype == np.uint64:
        return None
    return np.ascontiguousarray(array, np.int64)


def as_index(item: Any) -> Indices | None:
    """Return the indices of one batch from a batch sampler's item; None if torch itself must interpret it.

    A sample's index may be a Python or numpy integer or a tensor with one; booleans are not indices.
    """
    if isinstance(item, torch.Tensor):
        return _integers(item.numpy(force=True))
    if isinstance(item, np.ndarray):
        return _integers(item)
    if not isinstance(item, (list, tuple)):
        return None
    if all(type(index) is int or isinstance(index, np.integer) for index in item):
        return _integers(item)
    if all(isinstance(index, torch.Tensor) and index.dim() == 0 for index in item):
        return _integers([index.item() for index in item])
    return None


class BatchCutter:
    """Cuts chunks of indices into batches, as torch's BatchSampler does with single indices."""

    def __init__(self, chunks: Iterator[Indices], batch_size: int, drop_last: bool) -> None:
        self._chunks = chunks
        self._batch_size = batch_size
        self._drop_last = drop_last
        self._rest: Indices = np.empty(0, np.int64)

    def __iter__(self) -> BatchCutter:
        return self

    def ready(self) -> bool:
        """Whether the next batch can be cut without drawing more indices."""
        return len(self._rest) >= self._batch_size

    def __next__(self) -> Indices:
        while not self.ready():
            chunk = next(self._chunks, None)
            if chunk is None:
                return self._last()
            self._rest = np.concatenate([self._rest, chunk]) if len(self._rest) else chunk
        batch, self._rest = self._rest[: self._batch_size], self._rest[self._batch_size :]
        return batch

    def _last(self) -> Indices:
        batch, self._rest = self._rest, self._rest[:0]
        if not len(batch) or self._drop_last:
            raise StopIteration
        return batch


class IndexPrefetch:
    """Draws `count` items at once and one more whenever one is taken, as torch does for its workers."""

    def __init__(self, items: Iterator[Any], count: int) -> None:
        self._items = items
        self._drawn = deque(itertools.islice(items, count))

    def __iter__(self) -> IndexPrefetch:
        return self

    def ready(self) -> bool:
        """Whether an item is ready."""
        return bool(self._drawn)

    def __next__(self) -> Any:
        if not self._drawn:
            raise StopIteration
        item = self._drawn.popleft()
        self._drawn.extend(itertools.islice(self._items, 1))
        return item


# Each of these draws an epoch's numbers when asked for the first index, and none later.
_AT_ONCE = (SequentialSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)


def settled_batches(batch_sampler: Any) -> float:
    """Return how many batches of an epoch may be asked for early without changing any random stream.

    0 for unknown samplers. A RandomSampler seeds a private generator; one with a shared generator draws from
    it again at its end.
    """
    if type(batch_sampler) is not BatchSampler:
        return 0
    sampler: Any = batch_sampler.sampler
    at_once = type(sampler) in _AT_ONCE or vars(type(sampler)).get(
        "draws_at_once", False
    )  # our own samplers say so
    if at_once or (type(sampler) is RandomSampler and sampler.generator is None):
        return math.inf
    if type(sampler) is RandomSampler and not sampler.replacement:
        return len(batch_sampler) - 1 if sampler.num_samples <= len(sampler.data_source) else 0
    return 0
