"""Find a loader's length and read its first batches, with as few side effects as possible."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from unstarve.collect.dali_pipeline import length_is_unknown
from unstarve.collect.random_state import random_state_kept
from unstarve.collect.torch_iterator import shut_down
from unstarve.steer.replay.replayed_batches import BatchCache

# Some loaders yield more or fewer batches than len() says. The number an epoch really yielded is remembered
# for as long as the loader lives, so that a later replay of it has the same length.
_yielded: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def note_epoch_length(loader: Any, batches: int) -> None:
    """Remember that a whole epoch of `loader` had this many batches."""
    try:
        _yielded[loader] = batches
    except TypeError:
        return  # no weak reference or hash, like a list: its len() can be trusted


def epoch_length(loader: Any) -> int | None:
    """Batches per epoch: as last seen, else as the loader says; None if unknown."""
    try:
        return _yielded[loader]
    except (KeyError, TypeError):
        return promised_length(loader)


def promised_length(loader: Any) -> int | None:
    """``len(loader)``, computed without the call if that has a side effect."""
    if length_is_unknown(loader):
        return None
    try:
        if not (isinstance(loader, DataLoader) and isinstance(loader.dataset, IterableDataset)):
            return len(loader)
        # After DataLoader.__len__ torch warns about an iterable dataset that yields more than its length.
        samples = len(loader.dataset)  # type: ignore[arg-type]  # may have a length; if not, a TypeError says so
    except (TypeError, NotImplementedError):
        return None
    if loader.batch_size is None:
        return samples
    return (math.floor if loader.drop_last else math.ceil)(samples / loader.batch_size)


def fill_cache(cache: BatchCache, loader: Any) -> int | None:
    """Read from `loader` until `cache` is full or the epoch ends; return the epoch's length if it ended.

    Random streams are restored, and workers started for this are gone on return.
    """
    with random_state_kept(loader):
        kept_workers = getattr(loader, "_iterator", None)
        iterator = iter(loader)
        try:
            return _read_into(cache, iterator)
        finally:
            if iterator is not loader and iterator is not kept_workers:
                shut_down(iterator, loader)


def _read_into(cache: BatchCache, iterator: Iterator[Any]) -> int | None:
    seen = 0
    while not cache.full:
        try:
            batch = next(iterator)
        except StopIteration:
            return seen
        cache.offer(batch)
        seen += 1
    return None
