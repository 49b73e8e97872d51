"""`CachedDataset`: samples are read once and then come from memory that all workers and ranks share."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch.utils.data import Dataset, Subset

from unstarve.errors import UsageError
from unstarve.fixes.datasets.cached.batches import Batches
from unstarve.fixes.datasets.cached.source import Columns, check_dataset, columns_in
from unstarve.fixes.memory.buffers import Allocator, empty_batch
from unstarve.fixes.memory.pinning import can_pin, empty_pinned_batch, lock_pages
from unstarve.fixes.memory.store.budget import budget_of, parse_bytes
from unstarve.fixes.memory.store.copies import Copies, copies_of
from unstarve.fixes.memory.store.frozen import warn_if_frozen
from unstarve.fixes.memory.store.homes import OverBudget, Wishes
from unstarve.fixes.memory.store.probing import probe


class CachedDataset(Dataset[Any]):
    """A dataset held in memory once, for all workers and all ranks of the machine, in any `DataLoader`.

    `data` is a tensor, a numpy array, or a tuple, list or dict of such with one row per sample; these are
    used where they lie, without a copy. Or it is a dataset with samples by index, whose samples are copied:
    at once (`fill="now"`, with progress on a terminal) or each when it is first asked for (`fill="lazy"`), by
    whichever worker that is, and then there for all of them.

    A sample comes back as it was: tensors, arrays, ints, floats, bools, texts, in the same tuples, lists and
    dicts, and whatever else can be pickled; it is a copy, so that changing it does not change the cache.
    Batches are what `default_collate` makes of the samples, gathered in one go where all have one shape;
    samples of different shapes are kept too, for a collate function of your own.

    `transform` is applied to a sample each time it is asked for. Whatever is random belongs here; whatever is
    not belongs into `data`, so that it runs once.

    `budget` is the most memory that copies may take, such as "8GB" (default: half of what is free). A dataset
    that takes more is an error before anything is filled, or with `over_budget="partial"` kept as far as it
    fits, the rest being read each time, or with "disk" kept in a file in `cache_dir` (default:
    $UNSTARVE_CACHE, else `~/.cache/unstarve`) that the next run finds again; `budget=0` with "disk" is a file
    in any case. The file is for this dataset alone, told by its code, parameters, length and a few samples;
    where the data behind them may change, give a `key` that changes with it. In a
    folder that others can write to, the file is in a subfolder ``user-UID``, since only your own are read.

    `pin` puts the cache and the batches made in the training process in page-locked memory, for fast copies
    to a GPU. `ds[10:20]` is a `Subset`. `source` is what was cached.

    Raises CacheError, with the index, for a sample that cannot be read or kept; CacheTooLargeError where the
    dataset does not fit; UsageError for arguments that make no sense.
    """

    def __init__(
        self,
        data: Any,
        *,
        transform: Callable[[Any], Any] | None = None,
        fill: Literal["now", "lazy"] = "now",
        budget: str | int | None = None,
        over_budget: OverBudget = "error",
        pin: bool = False,
        cache_dir: str | Path | None = None,
        key: str | None = None,
        progress: bool = True,
    ) -> None:
        if fill not in ("now", "lazy"):
            raise UsageError(f'fill must be "now" or "lazy", not {fill!r}')
        if over_budget not in ("error", "partial", "disk"):
            raise UsageError(f'over_budget must be "error", "partial" or "disk", not {over_budget!r}')
        if budget is not None:
            parse_bytes(budget)
        self.transform = transform
        held: Columns | Copies | None = columns_in(data)
        if held is None:
            samples = check_dataset(data)
            probed = probe(data, samples)
            warn_if_frozen(data, probed.drew)
            wishes = Wishes(budget_of(budget), over_budget, fill == "lazy", cache_dir)
            held = copies_of(data, samples, probed, wishes, key, show=progress)
        self._held: Columns | Copies = held
        self._batches = Batches(held.layout)
        self._empty: Allocator = empty_batch
        if pin and can_pin():
            lock_pages(held.rows.columns)
            self._empty = empty_pinned_batch

    def __len__(self) -> int:
        return self._held.samples

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Subset(self, range(*index.indices(len(self))))
        at = operator.index(index)
        count = self._held.samples
        if not -count <= at < count:
            raise IndexError(f"index {at} is out of bounds for {count} samples")
        sample = self._held.get(at % count)
        return sample if self.transform is None else self.transform(sample)

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Any]:
        """Return several samples at once; `default_collate` finds its batch already made."""
        held = self._held
        if self._batches.possible and self.transform is None:
            numbers = indices if type(indices) is list else np.asarray(indices).tolist()
            if held.bring_rows(numbers):
                batch = self._batches.of(held, numbers, self._empty)
                if batch is not None:
                    return batch
        return [self[index] for index in indices]

    def rows(self) -> Any:
        """Return one tensor per value, in the structure of a sample: row i is of sample i.

        None while that is not all there is to a sample: a transform, texts, samples of different shapes, or
        some that are not there yet. The tensors are the cache itself: do not write to them.
        """
        held = self._held
        layout = held.layout
        if self.transform is not None or not layout.batchable or layout.in_blobs or not held.all_rows():
            return None
        return layout.sample(held.rows.columns)

    @property
    def source(self) -> Any:
        """The data that was cached; None in a worker process that does not need it."""
        return self._held.source

    def __repr__(self) -> str:
        return f"CachedDataset({len(self):,} samples of {self._held.layout}; {self._held.where()})"
