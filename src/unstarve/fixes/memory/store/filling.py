"""Samples from the dataset into the store, by one process or by all ranks of a machine at once.

Samples are filled in chunks; who fills one holds its lock. The others pass by and come back at the end: if a
process has died with a chunk in its hands, the lock is free and the chunk is filled by who comes back. If it
was stopped, its chunk is filled without the lock after a while.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from unstarve.errors import CacheError
from unstarve.fixes.memory.store import patience
from unstarve.fixes.memory.store.layout import Layout
from unstarve.fixes.memory.store.locks import try_lock, unlock
from unstarve.fixes.memory.store.patience import Patience
from unstarve.fixes.memory.store.progress import Progress
from unstarve.fixes.memory.store.store import MISSING, NO_ROOM, Store

_CHUNK_LOCKS = 1  # the numbers of the chunks' locks begin here
_MOST_CHUNK_SAMPLES = 64
_FEWEST_CHUNKS = 64
_AT_ONCE_BYTES = 16 << 20


def fill(
    store: Store, source: Any, *, first: float = 0.0, stop_when_full: bool = False, show: bool = True
) -> bool:
    """Fill what is missing and return whether there was room for all of it.

    `first`, 0–1, is where to begin, so that ranks do not queue for the same chunks. Raises CacheError with
    the index of the sample that could not be read or kept.
    """
    held = store.plan.held
    chunk_samples = max(1, min(_MOST_CHUNK_SAMPLES, held // _FEWEST_CHUNKS))
    chunk_count = -(-held // chunk_samples)
    order = np.roll(np.arange(chunk_count), -int(first * chunk_count)).tolist()
    progress = Progress("caching samples", held, show=show)
    fd = store.region.fd
    try:
        for take in (_try_chunk, _wait_for_chunk):
            for chunk in order:
                span = range(chunk * chunk_samples, min((chunk + 1) * chunk_samples, held))
                if store.states[span.start : span.stop].all() or not take(store, span, _CHUNK_LOCKS + chunk):
                    continue
                try:
                    if not _fill_chunk(store, source, span, stop_when_full, progress):
                        return False
                finally:
                    unlock(fd, _CHUNK_LOCKS + chunk)
    finally:
        progress.close()
    return not (store.states == NO_ROOM).any()


def _try_chunk(store: Store, span: range, at: int) -> bool:
    return try_lock(store.region.fd, at)


def _wait_for_chunk(store: Store, span: range, at: int) -> bool:
    """Wait until the chunk is ours, or whoever has it gets on no more: then its samples are read here too."""
    waiting = Patience(patience.STALLED_S)
    while not try_lock(store.region.fd, at):
        if waiting.is_over(int(np.count_nonzero(store.states[span.start : span.stop]))):
            warnings.warn(
                "another process has stopped while it filled the cache: its samples are read here too",
                stacklevel=6,
            )
            break
        time.sleep(patience.POLL_S)
    return True


def _fill_chunk(store: Store, source: Any, span: range, stop_when_full: bool, progress: Progress) -> bool:
    missing = [index for index in span if store.states[index] == MISSING]
    for index, sample in _fetched_each(source, missing, _samples_at_once(store.layout)):
        if keep(store, index, sample) == NO_ROOM and stop_when_full:
            return False
        if progress.due():
            progress.paint(int(np.count_nonzero(store.states)))
    return True


def _samples_at_once(layout: Layout) -> int:
    """How many samples may be in memory beside the store: one, where it is not known what they take."""
    return 1 if layout.in_blobs else max(1, _AT_ONCE_BYTES // max(1, layout.row_bytes))


def _fetched_each(source: Any, indices: list[int], at_once: int) -> Iterator[tuple[int, Any]]:
    """Read samples, several at once from a dataset that can."""
    several = getattr(source, "__getitems__", None)
    for begin in range(0, len(indices), at_once):
        some = indices[begin : begin + at_once]
        samples = None
        if several is not None and len(some) > 1:
            with suppress(Exception):  # one by one, below, it shows which of them it was
                samples = several(some)
        if samples is not None:
            yield from zip(some, samples, strict=True)
        else:
            for index in some:
                yield index, fetched(source, index)


def fetched(source: Any, index: int) -> Any:
    """Read a sample from a dataset. Raises CacheError that names it."""
    try:
        return source[index]
    except Exception as error:  # whatever a dataset raises: with the index it can be found
        raise CacheError(f"sample {index} could not be read: {type(error).__name__}: {error}") from error


def keep(store: Store, index: int, sample: Any) -> int:
    """Copy a sample into the store and return its state. Raises CacheError that names it."""
    try:
        return store.put(index, sample)
    except Exception as error:  # whatever pickle raises for what a dataset returns
        raise cannot_keep(index, error) from error


def cannot_keep(index: int, error: Exception) -> CacheError:
    """Say which sample cannot be cached and why."""
    if isinstance(error, CacheError):
        return CacheError(f"sample {index}: {error}")
    return CacheError(f"sample {index} cannot be cached: {type(error).__name__}: {error}")
