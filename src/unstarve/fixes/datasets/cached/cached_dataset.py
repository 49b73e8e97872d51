"""`CachedDataset`: samples are read once, then come from memory that all workers and ranks share."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch.utils.data import Dataset, Subset

from unstarve.errors import UsageError
from unstarve.fixes.datasets.cached.given_columns import GivenColumns, check_dataset, columns_in
from unstarve.fixes.memory.buffers import Allocator, empty_batch
from unstarve.fixes.memory.pinning import can_pin, empty_pinned_batch, lock_pages
from unstarve.fixes.memory.store.cache_placement import CacheOptions, OverBudget, budget_of, parse_bytes
from unstarve.fixes.memory.store.dataset_probe import probe, warn_if_random
from unstarve.fixes.memory.store.sample_layout import SampleLayout
from unstarve.fixes.memory.store.stored_copies import Copies, copies_of
from unstarve.fixes.samples.built_batch import Batched
from unstarve.fixes.samples.leaves import LeafKind, viewer
from unstarve.fixes.samples.structure import inside_sequence


class CachedDataset(Dataset[Any]):
    """A dataset in memory once for all workers and ranks of the machine, for any `DataLoader`.

    `data` is a tensor, a numpy array, or a tuple, list or dict of them with one row per sample; these are
    used in place, without a copy. Or it is a map-style dataset, whose samples are copied: all at once
    (`fill="now"`, with a progress bar on a terminal) or each when it is first asked for (`fill="lazy"`) by
    whichever worker that is, and then for all workers.

    A sample comes back as it was: tensors, arrays, ints, floats, bools and texts in the same tuples, lists
    and dicts, and anything else that can be pickled. It is a copy: changing it does not change the cache.
    Batches are what `default_collate` makes of the samples, gathered in one call if all have one shape;
    samples of different shapes are cached too, for your own collate function.

    `transform` is applied to a sample each time it is asked for. Put random transforms here and deterministic
    ones into `data`, where they run once.

    `budget` is the most memory that copies may take, such as "8GB" (default: half of the free memory). A
    dataset that needs more raises an error before anything is filled. With `over_budget="partial"` as many
    samples as fit are cached and the rest is read each time; with "disk" they are cached in a file in
    `cache_dir` (default: $UNSTARVE_CACHE, else `~/.cache/unstarve`) that the next run reuses. `budget=0` with
    "disk" always uses a file. The file belongs to this dataset alone, identified by its code, parameters,
    length and a few samples; if the data behind them may change, pass a `key` that changes with it. In a
    folder that others can write to, the file is in a subfolder ``user-UID``, because only your own files are
    read.

    `pin` puts the cache, and the batches made in the training process, into page-locked memory for fast
    copies to a GPU. `ds[10:20]` is a `Subset`. `source` is what was cached.

    Raises CacheError, with the index, for a sample that cannot be read or cached; CacheTooLargeError if the
    dataset does not fit; UsageError for invalid arguments.
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
            raise UsageError(f'fill must be "now" or "lazy", got {fill!r}')
        if over_budget not in ("error", "partial", "disk"):
            raise UsageError(f'over_budget must be "error", "partial" or "disk", got {over_budget!r}')
        if budget is not None:
            parse_bytes(budget)
        self.transform = transform
        held: GivenColumns | Copies | None = columns_in(data)
        if held is None:
            samples = check_dataset(data)
            probed = probe(data, samples)
            warn_if_random(data, probed.drew)
            options = CacheOptions(budget_of(budget), over_budget, fill == "lazy", cache_dir)
            held = copies_of(data, samples, probed, options, key, show=progress)
        self._held: GivenColumns | Copies = held
        self._batches = _Batches(held.layout)
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
        """Return several samples at once, as a batch that `default_collate` takes as it is."""
        held = self._held
        if self._batches.possible and self.transform is None:
            numbers = indices if type(indices) is list else np.asarray(indices).tolist()
            if held.bring_rows(numbers):
                batch = self._batches.of(held, numbers, self._empty)
                if batch is not None:
                    return batch
        return [self[index] for index in indices]

    def rows(self) -> Any:
        """Return one tensor per value, in the structure of a sample: row i belongs to sample i.

        None if rows are not the whole of a sample (a transform, texts, different shapes) or if some samples
        are not cached yet. The tensors are the cache itself: do not write to them.
        """
        held = self._held
        layout = held.layout
        if self.transform is not None or not layout.batchable or layout.in_blobs or not held.all_rows():
            return None
        return layout.sample(held.rows.columns)

    @property
    def source(self) -> Any:
        """The data that was cached; None in a worker process that does not need it any more."""
        return self._held.source

    def __repr__(self) -> str:
        return f"CachedDataset({len(self):,} samples of {self._held.layout}; {self._held.where()})"


class _Batches:
    """Gathers rows into the batches that `default_collate` would make of samples with this layout."""

    def __init__(self, layout: SampleLayout) -> None:
        self.possible = layout.batchable
        self._layout = layout
        self._is_bare = layout.tree == 0
        self._is_tensor = self._is_bare and layout.leaves[0].kind is LeafKind.TENSOR
        # default_collate zips the values of a sequence, which makes tuples, and lists those of a dict.
        in_sequence = inside_sequence(layout.tree)
        self._text_kinds = [(at, tuple if in_sequence[at] else list) for at in layout.in_blobs]

    def __reduce__(self) -> Any:
        return _Batches, (self._layout,)

    def of(self, held: GivenColumns | Copies, indices: list[int], empty: Allocator) -> Batched | None:
        """Gather these samples, all of which are rows; None if an index is not an int."""
        values: list[Any] | None = held.rows.gather(indices, empty)
        if values is None:
            return None
        if self._is_bare:
            whole = values[0]
            view = whole.__getitem__ if self._is_tensor else viewer(self._layout.leaves[0], whole)
            return Batched(whole, len(indices), view)
        if self._text_kinds and isinstance(held, Copies):
            values = self._with_texts(values, [held.texts(at) for at in indices])
        return Batched(self._layout.batch(values), len(indices), self._taking_apart(values))

    def _with_texts(self, tensors: list[Any], texts: Sequence[Sequence[Any]]) -> list[Any]:
        values: list[Any] = [None] * len(self._layout.leaves)
        for at, tensor in zip(self._layout.in_rows, tensors, strict=True):
            values[at] = tensor
        for (at, kind), column in zip(self._text_kinds, zip(*texts, strict=True), strict=True):
            values[at] = kind(column)
        return values

    def _taking_apart(self, values: list[Any]) -> Callable[[int], Any]:
        """Return a function that gives the i-th sample of a batch."""
        views = [viewer(leaf, value) for leaf, value in zip(self._layout.leaves, values, strict=True)]
        build = self._layout.sample
        return lambda at: build([view(at) for view in views])
