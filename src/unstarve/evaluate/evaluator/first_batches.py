"""How long a loader is and what its first batches look like, at the least cost to the loader."""

from __future__ import annotations

import inspect
import math
import weakref
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from unstarve.evaluate.random_state import random_state_kept
from unstarve.steer.replay.replayed_batches import BatchCache

# A length is a promise, and some loaders break it. What an epoch really yielded is remembered here for
# as long as the loader lives, so that a later replay of the same loader can be as long.
_yielded: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def note_epoch_length(loader: Any, batches: int) -> None:
    """A whole epoch of `loader` was seen to have this many batches."""
    try:
        _yielded[loader] = batches
    except TypeError:
        return  # cannot be weakly referenced or hashed, like a list: its len() is to be trusted


def epoch_length(loader: Any) -> int | None:
    """Batches per epoch: as last seen, else as the loader says; None when nobody knows."""
    try:
        return _yielded[loader]
    except (KeyError, TypeError):
        return promised_length(loader)


def promised_length(loader: Any) -> int | None:
    """What ``len(loader)`` would be, without the call where it has a side effect."""
    try:
        if not (isinstance(loader, DataLoader) and isinstance(loader.dataset, IterableDataset)):
            return len(loader)
        # DataLoader.__len__ would make torch warn later about a dataset that yields more than it said.
        samples = len(loader.dataset)  # type: ignore[arg-type]  # may have a length; if not, a TypeError says so
    except (TypeError, NotImplementedError):
        return None
    if loader.batch_size is None:
        return samples
    return (math.floor if loader.drop_last else math.ceil)(samples / loader.batch_size)


def fill_cache(cache: BatchCache, loader: Any) -> int | None:
    """Read from `loader` until `cache` is full or the epoch ends, and leave as little trace as possible.

    Random streams are put back, and workers that were started for this are gone on return. The epoch's
    length is returned if it was seen to end.
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


def shut_down(iterator: Any, loader: Any) -> None:
    """End an iteration before its end: its workers are gone on return."""
    if inspect.isgenerator(iterator):
        iterator.close()
    elif hasattr(iterator, "_shutdown_workers"):
        iterator._shutdown_workers()
        if (
            getattr(loader, "_iterator", None) is iterator
        ):  # persistent workers: the next epoch makes new ones
            loader._iterator = None
