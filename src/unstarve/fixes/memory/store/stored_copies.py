"""Samples of a dataset, copied into a store: all at once, or each when it is first asked for.

All ranks of a machine may fill one store together. Samples are filled in chunks, each under a lock; a process
skips the chunks that others are filling and comes back to them at the end. If a process has died, its lock is
free and its chunk is filled then. If it was stopped, its chunk is filled without the lock after a while.
"""

from __future__ import annotations

import operator
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from unstarve.fixes.memory.store import process_locks, rank_sharing
from unstarve.fixes.memory.store.cache_key import key_from, key_of
from unstarve.fixes.memory.store.cache_placement import (
    CacheOptions,
    PlacedStore,
    StoreNeeds,
    place_on_disk,
    place_store,
    too_large,
)
from unstarve.fixes.memory.store.dataset_probe import DatasetProbe, cannot_cache, fetched
from unstarve.fixes.memory.store.process_locks import StallTimer, try_lock, unlock
from unstarve.fixes.memory.store.sample_layout import Rows, SampleLayout
from unstarve.fixes.memory.store.sample_store import MISSING, NO_ROOM, ODD, ROW, Store
from unstarve.progress import SampleProgress, progress, stderr_console
from unstarve.words import size as in_words

_BATCHES_BETWEEN_CHECKS = 64
_CHUNK_LOCKS = 1  # the byte of the first chunk's lock
_MAX_CHUNK_SAMPLES = 64
_MIN_CHUNKS = 64
_AT_ONCE_BYTES = 16 << 20


class Copies:
    """A dataset's samples in a store; a sample that is not there is read from `source`.

    Warns when the store is full, unless `may_overflow`. Pickled for another process, it is a handle to the
    store, with the source only if that is still needed.
    """

    def __init__(self, source: Any, samples: int, placed: PlacedStore, may_overflow: bool) -> None:
        self.source = source
        self.samples = samples
        self._placed = placed
        self._may_overflow = may_overflow
        self._store = placed.store
        self.rows: Rows = placed.store.rows
        self._all_rows = False
        self._until_check = _BATCHES_BETWEEN_CHECKS
        self.all_rows()
        weakref.finalize(self, _finish, placed)

    def __reduce__(self) -> Any:
        source = None if self._store.is_complete() else self.source
        return _received, (source, self.samples, self._store, self._may_overflow)

    def __deepcopy__(self, memo: Any) -> Copies:
        return self

    @property
    def layout(self) -> SampleLayout:
        """The layout that most samples share."""
        return self._store.layout

    def get(self, index: int) -> Any:
        """Return a sample, from the store or from the source."""
        store = self._store
        if index >= store.plan.held:
            return self.source[index]
        if store.states[index] == MISSING:
            sample = self.source[index]
            if self._keep(index, sample) not in (ROW, ODD):
                return sample
        return self.source[index] if store.states[index] == NO_ROOM else store.get(index)

    def has(self, index: int) -> bool:
        """Whether a sample is in the store."""
        store = self._store
        return index < store.plan.held and store.states[index] in (ROW, ODD)

    def texts(self, index: int) -> Sequence[Any]:
        """Return the values of a sample that do not lie in rows."""
        return self._store.texts(index)

    def all_rows(self) -> bool:
        """Whether every sample is stored and has the common layout."""
        if not self._all_rows:
            store = self._store
            self._all_rows = store.plan.held == self.samples and bool((store.states == ROW).all())
            try:
                self._placed.finish()
            except OSError as error:
                warnings.warn(
                    f"the cache file could not be kept ({error}): the next run will build the cache again",
                    stacklevel=3,
                )
            self._store = self._placed.store
            self.rows = self._store.rows
        return self._all_rows

    def bring_rows(self, indices: list[int]) -> bool:
        """Read the missing ones of these samples; whether all are stored then, with the common layout."""
        if self._all_rows:
            return True
        self._until_check -= 1
        if self._until_check <= 0:
            self._until_check = max(_BATCHES_BETWEEN_CHECKS, self.samples // 10_000)
            if self.all_rows():
                return True
        states, positions = self._store.states, np.array(indices)
        if positions.dtype != np.int64 or positions.min() < 0 or positions.max() >= len(states):
            return False
        missing = dict.fromkeys(positions[states[positions] == MISSING].tolist())
        for index, sample in _read_each(self.source, list(missing), _samples_at_once(self.layout)):
            if states[index] == MISSING:  # no other process was faster
                self._keep(index, sample)
        return bool((states[positions] == ROW).all())

    def where(self) -> str:
        """Say where the samples are stored, how many, and how much space they take."""
        store = self._store
        held = int(np.isin(store.states, (ROW, ODD)).sum())
        part = "" if held == self.samples else f"{held:,} of them "
        place = "memory" if not store.region.on_disk else store.region.path or "a temporary file"
        return f"{part}in {place}, {in_words(store.taken_bytes)}"

    def _keep(self, index: int, sample: Any) -> int:
        state = keep(self._store, index, sample)
        if state == NO_ROOM and not self._may_overflow:
            self._may_overflow = True  # warn once
            _warn_full(self._store)
        return state


def copies_of(
    source: Any, samples: int, probed: DatasetProbe, options: CacheOptions, key: str | None, *, show: bool
) -> Copies:
    """Find or make the store of a dataset and fill it, unless `options` ask for lazy filling."""
    if key is None:
        name = partial(key_of, source, samples, list(probed.samples.values()))
    else:
        name = partial(key_from, key, samples)
    needs = StoreNeeds(probed.layout, samples, probed.blob_bytes)
    placed = place_store(needs, options, name)
    try:
        for index, sample in probed.samples.items():
            if index < placed.store.plan.held:
                keep(placed.store, index, sample)
        if not options.lazy and not _fill(placed, source, options, show):
            placed = _moved_to_disk(placed, source, needs, options, name, show)
    except BaseException:  # also Ctrl-C: leave nothing half-filled behind
        placed.abandon()
        raise
    return Copies(source, samples, placed, may_overflow=options.over_budget == "partial")


def _fill(placed: PlacedStore, source: Any, options: CacheOptions, show: bool) -> bool:
    """Fill a store; False if the dataset needs a larger one."""
    store = placed.store
    may_move = options.over_budget == "disk" and not store.region.on_disk and not placed.is_shared
    is_error = options.over_budget == "error"
    rank = rank_sharing.local_rank() or 0
    fits = fill(
        store,
        source,
        first=rank / rank_sharing.local_ranks() % 1,
        stop_when_full=is_error or may_move,
        show=show and rank == 0,
    )
    if not fits and is_error:
        filled = int(np.count_nonzero(store.states))
        raise too_large(store.plan.samples, store.taken_bytes / filled * store.plan.samples, options.budget)
    if not fits and options.over_budget == "disk" and not may_move:  # ranks cannot move together
        _warn_full(store)
    return fits or not may_move


def _moved_to_disk(
    placed: PlacedStore,
    source: Any,
    needs: StoreNeeds,
    options: CacheOptions,
    name: Callable[[], str],
    show: bool,
) -> PlacedStore:
    """Move to a file: the dataset turned out larger than its first samples suggested."""
    on_disk = place_on_disk(needs, options, name)
    try:
        fill(on_disk.store, _StoreOrSource(placed.store, source), show=show)
    except BaseException:  # also Ctrl-C: leave nothing half-filled behind
        on_disk.abandon()
        raise
    return on_disk


def _warn_full(store: Store) -> None:
    warnings.warn(
        f"the cache is full at {in_words(store.taken_bytes)}: samples that are not in it are read from the"
        " dataset every time; pass a larger budget=",
        stacklevel=5,
    )


@dataclass(frozen=True)
class _StoreOrSource:
    """Samples from a store if they are there, else from their source."""

    store: Store
    source: Any

    def __getitem__(self, index: int) -> Any:
        return self.store.get(index) if self.store.states[index] in (ROW, ODD) else self.source[index]


def _finish(placed: PlacedStore) -> None:
    with suppress(OSError):  # at the end of a program there is nobody to tell
        placed.finish()


def _received(source: Any, samples: int, store: Store, may_overflow: bool) -> Copies:
    """Rebuild in another process what `Copies.__reduce__` sent."""
    return Copies(source, samples, PlacedStore(store), may_overflow)


def fill(
    store: Store, source: Any, *, first: float = 0.0, stop_when_full: bool = False, show: bool = True
) -> bool:
    """Fill what is missing and return whether there was room for all of it.

    `first`, 0–1, is where to begin, so that ranks do not queue for the same chunks. `show` draws a progress
    bar if stderr is a terminal. Raises CacheError, which names the sample that could not be read or kept.
    """
    held = store.plan.held
    chunk_samples = max(1, min(_MAX_CHUNK_SAMPLES, held // _MIN_CHUNKS))
    chunk_count = -(-held // chunk_samples)
    order = np.roll(np.arange(chunk_count), -int(first * chunk_count)).tolist()
    fd = store.region.fd
    show = show and sys.stderr is not None and sys.stderr.isatty()
    with progress(stderr_console() if show else None, "cached", log=False) as shown:
        for take in (_try_chunk, _wait_for_chunk):
            for chunk in order:
                span = range(chunk * chunk_samples, min((chunk + 1) * chunk_samples, held))
                if store.states[span.start : span.stop].all() or not take(store, span, _CHUNK_LOCKS + chunk):
                    continue
                try:
                    if not _fill_chunk(store, source, span, stop_when_full, shown):
                        return False
                finally:
                    unlock(fd, _CHUNK_LOCKS + chunk)
    return not (store.states == NO_ROOM).any()


def _try_chunk(store: Store, span: range, at: int) -> bool:
    return try_lock(store.region.fd, at)


def _wait_for_chunk(store: Store, span: range, at: int) -> bool:
    """Wait for the chunk's lock; do without it if the process that holds it has stopped."""
    timer = StallTimer(process_locks.STALLED_S)
    while not try_lock(store.region.fd, at):
        if timer.is_expired(int(np.count_nonzero(store.states[span.start : span.stop]))):
            warnings.warn(
                "another process stopped while it was filling the cache: its samples are read here too",
                stacklevel=6,
            )
            break
        time.sleep(process_locks.POLL_S)
    return True


def _fill_chunk(store: Store, source: Any, span: range, stop_when_full: bool, shown: SampleProgress) -> bool:
    missing = [index for index in span if store.states[index] == MISSING]
    for index, sample in _read_each(source, missing, _samples_at_once(store.layout), fetched):
        if keep(store, index, sample) == NO_ROOM and stop_when_full:
            return False
        if shown.is_due():
            shown.reach(int(np.count_nonzero(store.states)), store.plan.held)
    return True


def _samples_at_once(layout: SampleLayout) -> int:
    """How many samples may be in memory besides the store: one, if their size is not known."""
    return 1 if layout.in_blobs else max(1, _AT_ONCE_BYTES // max(1, layout.row_bytes))


def _read_each(
    source: Any, indices: list[int], at_once: int, read: Callable[[Any, int], Any] = operator.getitem
) -> Iterator[tuple[int, Any]]:
    """Read samples, several at once if the dataset can, else with `read`, whose exceptions are raised."""
    several = getattr(source, "__getitems__", None)
    for begin in range(0, len(indices), at_once):
        some = indices[begin : begin + at_once]
        samples = None
        if several is not None and len(some) > 1:
            with suppress(Exception):  # reading one by one, below, names the sample that fails
                samples = several(some)
        if samples is not None:
            yield from zip(some, samples, strict=True)
        else:
            for index in some:
                yield index, read(source, index)


def keep(store: Store, index: int, sample: Any) -> int:
    """Copy a sample into the store and return its state. Raises CacheError, which names the index."""
    try:
        return store.put(index, sample)
    except Exception as error:  # whatever pickle raises for what a dataset returns
        raise cannot_cache(index, error) from error
