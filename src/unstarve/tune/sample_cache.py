"""Whether the samples of a loader may be kept in memory, and the cache that keeps them."""

from __future__ import annotations

import weakref
from typing import Any

from torch.utils.data import DataLoader, Subset

from unstarve.collect.random_sources import keeps_random_state
from unstarve.collect.random_state import random_state_kept
from unstarve.errors import UnstarveError, UsageError
from unstarve.fixes.datasets.cached.cached_dataset import CachedDataset
from unstarve.fixes.loader.engines.memory_engines import rows_in
from unstarve.fixes.memory.store.dataset_probe import fetched, probe, random_parts
from unstarve.fixes.memory.store.sample_layout import dumps
from unstarve.stack_levels import uncounted


def why_no_cache(loader: DataLoader[Any]) -> str | None:
    """Say why its samples may not be kept, as far as that shows without reading one.

    Empty if there is nothing to keep: they are in memory, or a part of unstarve reads them.
    """
    dataset = loader.dataset
    inner: Any = dataset
    while type(inner) is Subset:
        inner = inner.dataset
    if type(inner).__module__.split(".")[0] == "unstarve" or not isinstance(rows_in(loader), str):
        return ""
    if not hasattr(dataset, "__len__"):
        return "the dataset has no length"
    names = sorted(set(random_parts(dataset)))
    if names:
        return f"{' and '.join(names)} must not do the same in every epoch"
    if keeps_random_state(dataset):
        return "the dataset has random numbers of its own, or samples that depend on the epoch"
    if type(inner) is not Subset and hasattr(inner, "__getitems__"):
        return "the dataset makes whole batches (__getitems__)"
    return None


@uncounted
def cache_of(loader: DataLoader[Any]) -> CachedDataset:
    """Keep the loader's samples, each from when it is first asked for.

    Raises UsageError with the reason if that would change a sample, CacheError if there is no memory for it.
    Reads a few samples, without moving a random stream.
    """
    dataset: Any = loader.dataset
    reason = why_no_cache(loader)
    if reason is not None:
        raise UsageError(reason or "its samples are in memory, or are read by unstarve, already")
    with random_state_kept(loader):
        probed = probe(dataset, len(dataset))
        if probed.drew:
            raise UsageError("samples draw random numbers, and would be the same in every epoch")
        for index, sample in probed.samples.items():
            if dumps(fetched(dataset, index)) != dumps(sample):
                raise UsageError(f"sample {index} was not the same when it was read again")
        return CachedDataset(dataset, fill="lazy", progress=False)


class CachedLoader:
    """A loader as a crew sees it whose samples come from a cache."""

    def __init__(self, loader: DataLoader[Any], dataset: CachedDataset) -> None:
        self._loader = weakref.proxy(loader)
        self.dataset = dataset

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def try_cache(loader: DataLoader[Any]) -> CachedDataset | str:
    """The cache, or why there can be none."""
    try:
        return cache_of(loader)
    except UnstarveError as error:
        return str(error)
