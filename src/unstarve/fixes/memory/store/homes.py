"""Where a store lives: in memory if the budget allows, else in part, or in a file, or nowhere."""

from __future__ import annotations

import errno
import shutil
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from unstarve.errors import CacheError, CacheTooLargeError
from unstarve.fixes.io.private_files import NotOursError
from unstarve.fixes.memory.region import Region, anonymous, unlinked
from unstarve.fixes.memory.store import disk, patience, ranks
from unstarve.fixes.memory.store.budget import Budget
from unstarve.fixes.memory.store.layout import Layout
from unstarve.fixes.memory.store.patience import Patience
from unstarve.fixes.memory.store.store import Plan, Store, plan, read_header, write_header
from unstarve.words import size as in_words

OverBudget = Literal["error", "partial", "disk"]

_WAIT_S = 0.1
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Needs:
    """What is known of a dataset before it is read: `blob_bytes` is what a sample takes outside of rows."""

    layout: Layout
    samples: int
    blob_bytes: float

    def size_bytes(self, held: int) -> int:
        """What that many samples take, with a little for the bookkeeping."""
        return plan(self.layout, self.samples, held, 0).taken_bytes + int(held * self.blob_bytes)

    def fitting(self, budget_bytes: int) -> int:
        """How many samples fit."""
        low, high = 0, self.samples
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.size_bytes(middle) <= budget_bytes else (low, middle - 1)
        return low


@dataclass(frozen=True)
class Wishes:
    """What the user asked for."""

    budget: Budget
    over_budget: OverBudget
    lazy: bool
    cache_dir: str | Path | None


@dataclass
class Home:
    """A store and how it is kept: with a `place` it is a file, which gets its name when it is complete.

    `claim` is the right to give it, which one process has.
    """

    store: Store
    place: disk.Place | None = None
    claim: disk.Claim | None = None
    is_shared: bool = False

    def finish(self) -> None:
        """Give a complete store's file its name, and read it from there, where nobody can change it.

        Raises OSError, once, where that fails: the store is still good, but the next run will not find it.
        """
        if self.place is None or not self.store.region.writable or not self.store.is_complete():
            return
        if self.claim is not None and self.claim.is_ours():
            claim, self.claim = self.claim, None
            claim.finish(self.store)
        self.store = disk.open_finished(self.place, self.store.plan.samples) or self.store

    def abandon(self) -> None:
        """Leave nothing behind of a store that will not be filled."""
        if self.claim is not None and self.claim.is_ours():
            self.claim.discard()
            self.claim = None


def find_home(needs: Needs, wishes: Wishes, key: Callable[[], str]) -> Home:
    """Find or make the store for a dataset; `key`, called only if need be, says which dataset it is.

    Raises CacheTooLargeError where it fits nowhere that was allowed.
    """
    if ranks.local_rank() is None:
        return _make(needs, wishes, key)
    made: list[Home] = []

    def make() -> Region:
        made.append(_make(needs, wishes, key))
        return made[0].store.region

    region = ranks.shared(key(), make)
    home = made[0] if made else _joined(region, needs, wishes, key)
    if home is None:
        return _make(needs, wishes, key)
    home.is_shared = True
    return home


def _joined(region: Region | None, needs: Needs, wishes: Wishes, key: Callable[[], str]) -> Home | None:
    """Return the home that another rank has made; None where it is of no use."""
    if region is None:
        return None
    header = read_header(region)
    if header is None or header[0].samples != needs.samples:
        ranks.warn_apart("what another rank shares is not the cache of this dataset and this version")
        return None
    place = None
    if region.on_disk:
        with suppress(OSError):  # then the other rank has no place either
            place = _place(wishes, key)
    return Home(Store(region, header[0]), place)


def find_home_on_disk(needs: Needs, wishes: Wishes, key: Callable[[], str]) -> Home:
    """Find or make the store for a dataset in a file. Raises CacheError where that cannot be."""
    rows_bytes = plan(needs.layout, needs.samples, needs.samples, 0).arena_at
    try:
        folder = disk.cache_folder(wishes.cache_dir)
        free_bytes = shutil.disk_usage(folder).free
        planned = plan(needs.layout, needs.samples, needs.samples, max(0, free_bytes - rows_bytes))
        try:
            return _claimed(_place(wishes, key), planned, lazy=wishes.lazy)
        except NotOursError as error:
            return _temporary(folder, planned, str(error))
    except OSError as error:
        what = (
            f"caching {needs.samples:,} samples in a file, about {in_words(needs.size_bytes(needs.samples))}"
        )
        advice = "choose another folder with cache_dir= or UNSTARVE_CACHE"
        kind = CacheTooLargeError if error.errno in _NO_SPACE else CacheError
        raise kind(f"{what}, failed ({error}): {advice}") from error


def _place(wishes: Wishes, key: Callable[[], str]) -> disk.Place:
    return disk.Place(disk.own_folder(disk.cache_folder(wishes.cache_dir)), key())


def _make(needs: Needs, wishes: Wishes, key: Callable[[], str]) -> Home:
    budget_bytes = wishes.budget.size_bytes
    needed_bytes = needs.size_bytes(needs.samples)
    held = needs.samples
    if needed_bytes > budget_bytes:
        if wishes.over_budget == "disk":
            return find_home_on_disk(needs, wishes, key)
        if wishes.over_budget == "error":
            raise too_large(needs.samples, needed_bytes, wishes.budget)
        held = needs.fitting(budget_bytes)
    rows_bytes = plan(needs.layout, needs.samples, held, 0).taken_bytes
    planned = plan(needs.layout, needs.samples, held, max(0, budget_bytes - rows_bytes))
    return Home(_new_store(anonymous(planned.size), planned))


def too_large(samples: int, needed_bytes: float, budget: Budget) -> CacheTooLargeError:
    """Say how much is needed, how much is allowed, and what can be done."""
    return CacheTooLargeError(
        f"caching {samples:,} samples takes about {in_words(needed_bytes)}, but only"
        f" {in_words(budget.size_bytes)} may be used ({budget.reason}): give a larger budget=, or choose"
        ' over_budget="partial" to keep as many samples as fit, or over_budget="disk" to keep them in a file'
    )


def _claimed(place: disk.Place, planned: Plan, *, lazy: bool) -> Home:
    """Take the finished file, or the right to make it; wait for somebody who is at it, where that ends."""
    waiting = Patience(patience.STALLED_S)
    while True:
        finished = disk.open_finished(place, planned.samples)
        if finished is not None:
            return Home(finished, place)
        begun = disk.try_begin(place, planned, lazy=lazy)
        if begun is not None:
            store, claim = begun
            return Home(store, place, claim)
        if lazy or disk.is_filled_lazily(place):
            return Home(_new_store(unlinked(place.folder, planned.size), planned))
        if waiting.is_over(disk.filled_samples(place)):
            return _temporary(place.folder, planned, f"the process that fills {place.partial} has stopped")
        time.sleep(_WAIT_S)


def _temporary(folder: Path, planned: Plan, why: str) -> Home:
    """Make a file that has no name, and that the next run will not find."""
    warnings.warn(f"the cache is a temporary file, of use to this run only: {why}", stacklevel=7)
    return Home(_new_store(unlinked(folder, planned.size), planned))


def _new_store(region: Region, planned: Plan) -> Store:
    region.reserve(0, planned.arena_at)
    write_header(region, planned)
    return Store(region, planned)
