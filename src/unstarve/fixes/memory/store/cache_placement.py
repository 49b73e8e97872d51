"""Where a store lives: in memory if the budget allows, else partly in memory, or in a file."""

from __future__ import annotations

import errno
import re
import shutil
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from unstarve.errors import CacheError, CacheTooLargeError, UsageError
from unstarve.fixes.io.private_files import NotOursError
from unstarve.fixes.memory.region import SharedRegion, anonymous, unlinked
from unstarve.fixes.memory.store import cache_files, process_locks, rank_sharing
from unstarve.fixes.memory.store.process_locks import StallTimer
from unstarve.fixes.memory.store.sample_layout import SampleLayout
from unstarve.fixes.memory.store.sample_store import Store, StorePlan, plan, read_header, write_header
from unstarve.machine import available_bytes
from unstarve.words import percent, size

OverBudget = Literal["error", "partial", "disk"]

DEFAULT_SHARE = 0.5
"""Of the memory that is free when the cache is made; the model, its batches and the workers need the rest."""

_POLL_S = 0.1
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{letter}{tail}": 1000**n for n, letter in enumerate("kmgt", 1) for tail in ("", "b")}
_UNITS |= {f"{letter}ib": 1024**n for n, letter in enumerate("kmgt", 1)}


@dataclass(frozen=True)
class Budget:
    """The memory a cache may take, and where that number comes from, for error messages."""

    size_bytes: int
    reason: str


def budget_of(given: str | int | None) -> Budget:
    """Return the budget a user gave: bytes, text such as "8GB" or "512 MiB", or None for a safe share."""
    if given is None:
        return Budget(int(available_bytes() * DEFAULT_SHARE), f"{percent(DEFAULT_SHARE)} of the free memory")
    return Budget(parse_bytes(given), "budget=")


def parse_bytes(given: str | int) -> int:
    """Return a number of bytes. Raises UsageError for anything else."""
    if isinstance(given, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", given.lower())
        if match is not None and match[2] in _UNITS:
            return int(float(match[1]) * _UNITS[match[2]])
    elif isinstance(given, int) and given >= 0 and not isinstance(given, bool):
        return given
    raise UsageError(f'budget must be a number of bytes or text such as "8GB", got {given!r}')


@dataclass(frozen=True)
class StoreNeeds:
    """What is known of a dataset before it is read. `blob_bytes`: mean size of a sample besides its rows."""

    layout: SampleLayout
    samples: int
    blob_bytes: float

    def size_bytes(self, held: int) -> int:
        """Bytes that `held` samples take, with the bookkeeping."""
        return plan(self.layout, self.samples, held, 0).taken_bytes + int(held * self.blob_bytes)

    def fitting(self, budget_bytes: int) -> int:
        """How many samples fit."""
        low, high = 0, self.samples
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.size_bytes(middle) <= budget_bytes else (low, middle - 1)
        return low


@dataclass(frozen=True)
class CacheOptions:
    """What the user asked for."""

    budget: Budget
    over_budget: OverBudget
    lazy: bool
    cache_dir: str | Path | None


@dataclass
class PlacedStore:
    """A store and where it lives. With `paths` it is a file, which gets its final name when it is complete.

    `claim` is the right to give it that name; one process has it.
    """

    store: Store
    paths: cache_files.CachePaths | None = None
    claim: cache_files.FillClaim | None = None
    is_shared: bool = False

    def finish(self) -> None:
        """Give a complete store's file its name, and read from that file, which nobody can change.

        Raises OSError, once, if that fails: the store still works, but the next run will not find it.
        """
        if self.paths is None or not self.store.region.writable or not self.store.is_complete():
            return
        if self.claim is not None and self.claim.is_ours():
            claim, self.claim = self.claim, None
            claim.finish(self.store)
        self.store = cache_files.open_finished(self.paths, self.store.plan.samples) or self.store

    def abandon(self) -> None:
        """Remove the file of a store that will not be filled."""
        if self.claim is not None and self.claim.is_ours():
            self.claim.discard()
            self.claim = None


def place_store(needs: StoreNeeds, options: CacheOptions, key: Callable[[], str]) -> PlacedStore:
    """Find or make the store for a dataset. `key`, called only if needed, identifies the dataset.

    Raises CacheTooLargeError if the dataset fits nowhere that `options` allow.
    """
    if rank_sharing.local_rank() is None:
        return _make(needs, options, key)
    made: list[PlacedStore] = []

    def make() -> SharedRegion:
        made.append(_make(needs, options, key))
        return made[0].store.region

    region = rank_sharing.shared(key(), make)
    placed = made[0] if made else _joined(region, needs, options, key)
    if placed is None:
        return _make(needs, options, key)
    placed.is_shared = True
    return placed


def _joined(
    region: SharedRegion | None, needs: StoreNeeds, options: CacheOptions, key: Callable[[], str]
) -> PlacedStore | None:
    """Return the store that another rank has made; None if this rank cannot use it."""
    if region is None:
        return None
    header = read_header(region)
    if header is None or header[0].samples != needs.samples:
        rank_sharing.warn_not_shared("another rank shares memory that is not the cache of this dataset")
        return None
    paths = None
    if region.on_disk:
        with suppress(OSError):  # then the other rank has no named file either
            paths = _paths(options, key)
    return PlacedStore(Store(region, header[0]), paths)


def place_on_disk(needs: StoreNeeds, options: CacheOptions, key: Callable[[], str]) -> PlacedStore:
    """Find or make the store for a dataset in a file. Raises CacheError if that fails."""
    rows_bytes = plan(needs.layout, needs.samples, needs.samples, 0).arena_at
    try:
        folder = cache_files.cache_folder(options.cache_dir)
        free_bytes = shutil.disk_usage(folder).free
        planned = plan(needs.layout, needs.samples, needs.samples, max(0, free_bytes - rows_bytes))
        try:
            return _claimed(_paths(options, key), planned, lazy=options.lazy)
        except NotOursError as error:
            return _temporary(folder, planned, str(error))
    except OSError as error:
        what = f"caching {needs.samples:,} samples in a file, about {size(needs.size_bytes(needs.samples))}"
        advice = "choose another folder with cache_dir= or UNSTARVE_CACHE"
        kind = CacheTooLargeError if error.errno in _NO_SPACE else CacheError
        raise kind(f"{what}, failed ({error}): {advice}") from error


def _paths(options: CacheOptions, key: Callable[[], str]) -> cache_files.CachePaths:
    folder = cache_files.own_folder(cache_files.cache_folder(options.cache_dir))
    return cache_files.CachePaths(folder, key())


def _make(needs: StoreNeeds, options: CacheOptions, key: Callable[[], str]) -> PlacedStore:
    budget_bytes = options.budget.size_bytes
    needed_bytes = needs.size_bytes(needs.samples)
    held = needs.samples
    if needed_bytes > budget_bytes:
        if options.over_budget == "disk":
            return place_on_disk(needs, options, key)
        if options.over_budget == "error":
            raise too_large(needs.samples, needed_bytes, options.budget)
        held = needs.fitting(budget_bytes)
    rows_bytes = plan(needs.layout, needs.samples, held, 0).taken_bytes
    planned = plan(needs.layout, needs.samples, held, max(0, budget_bytes - rows_bytes))
    return PlacedStore(_new_store(anonymous(planned.size), planned))


def too_large(samples: int, needed_bytes: float, budget: Budget) -> CacheTooLargeError:
    """Return an error that says how much is needed, how much is allowed, and what to do."""
    return CacheTooLargeError(
        f"caching {samples:,} samples takes about {size(needed_bytes)}, but only"
        f" {size(budget.size_bytes)} may be used ({budget.reason}): pass a larger budget=, or"
        ' over_budget="partial" to cache as many samples as fit, or over_budget="disk" to cache in a file'
    )


def _claimed(paths: cache_files.CachePaths, planned: StorePlan, *, lazy: bool) -> PlacedStore:
    """Open the finished file or claim the right to make it; wait for a process that is filling it now."""
    timer = StallTimer(process_locks.STALLED_S)
    while True:
        finished = cache_files.open_finished(paths, planned.samples)
        if finished is not None:
            return PlacedStore(finished, paths)
        begun = cache_files.try_begin(paths, planned, lazy=lazy)
        if begun is not None:
            store, claim = begun
            return PlacedStore(store, paths, claim)
        if lazy or cache_files.is_filled_lazily(paths):
            return PlacedStore(_new_store(unlinked(paths.folder, planned.size), planned))
        if timer.is_expired(cache_files.filled_samples(paths)):
            return _temporary(paths.folder, planned, f"the process that fills {paths.partial} has stopped")
        time.sleep(_POLL_S)


def _temporary(folder: Path, planned: StorePlan, why: str) -> PlacedStore:
    """Make a file without a name, which the next run cannot find."""
    warnings.warn(f"the cache is a temporary file that the next run cannot reuse: {why}", stacklevel=7)
    return PlacedStore(_new_store(unlinked(folder, planned.size), planned))


def _new_store(region: SharedRegion, planned: StorePlan) -> Store:
    region.reserve(0, planned.arena_at)
    write_header(region, planned)
    return Store(region, planned)
