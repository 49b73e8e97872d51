"""Samples of a dataset, copied into a store: all of them at once, or each when it is first asked for."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from unstarve.fixes.memory.store import filling, ranks
from unstarve.fixes.memory.store.homes import Home, Needs, Wishes, find_home, find_home_on_disk, too_large
from unstarve.fixes.memory.store.key import key_from, key_of
from unstarve.fixes.memory.store.layout import Layout
from unstarve.fixes.memory.store.probing import Probe
from unstarve.fixes.memory.store.rows import Rows
from unstarve.fixes.memory.store.store import MISSING, NO_ROOM, ODD, ROW, Store
from unstarve.words import size as in_words

_BATCHES_BETWEEN_LOOKS = 64


class Copies:
    """A dataset's samples in a store; `source` is asked for those that are not there.

    Warns when the store is full, unless `may_overflow`. Reaches other processes as a handle to the store,
    with the source only where it is still needed.
    """

    def __init__(self, source: Any, samples: int, home: Home, may_overflow: bool) -> None:
        self.source = source
        self.samples = samples
        self._home = home
        self._may_overflow = may_overflow
        self._store = home.store
        self.rows: Rows = home.store.rows
        self._all_rows = False
        self._until_look = _BATCHES_BETWEEN_LOOKS
        self.all_rows()
        weakref.finalize(self, _finish, home)

    def __reduce__(self) -> Any:
        source = None if self._store.is_complete() else self.source
        return _arrived, (source, self.samples, self._store, self._may_overflow)

    def __deepcopy__(self, memo: Any) -> Copies:
        return self

    @property
    def layout(self) -> Layout:
        """What the samples have in common."""
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

    def texts(self, index: int) -> Sequence[Any]:
        """Return the values of a sample that do not lie in rows."""
        return self._store.texts(index)

    def all_rows(self) -> bool:
        """Whether every sample is there, and is like the others."""
        if not self._all_rows:
            store = self._store
            self._all_rows = store.plan.held == self.samples and bool((store.states == ROW).all())
            try:
                self._home.finish()
            except OSError as error:
                warnings.warn(
                    f"the cache is of use to this run only: its file is lost ({error})", stacklevel=3
                )
            self._store = self._home.store
            self.rows = self._store.rows
        return self._all_rows

    def bring_rows(self, indices: list[int]) -> bool:
        """Read those of these samples that are not there yet; whether all are there then, and alike."""
        if self._all_rows:
            return True
        self._until_look -= 1
        if self._until_look <= 0:
            self._until_look = max(_BATCHES_BETWEEN_LOOKS, self.samples // 10_000)
            if self.all_rows():
                return True
        states, positions = self._store.states, np.array(indices)
        if positions.dtype != np.int64 or positions.min() < 0 or positions.max() >= len(states):
            return False
        for index in positions[states[positions] == MISSING].tolist():
            if states[index] == MISSING:  # it may be among them twice
                self._keep(index, self.source[index])
        return bool((states[positions] == ROW).all())

    def where(self) -> str:
        """Say where the samples are, how many of them, and what they take."""
        store = self._store
        held = int(np.isin(store.states, (ROW, ODD)).sum())
        part = "" if held == self.samples else f"{held:,} of them "
        place = "memory" if not store.region.on_disk else store.region.path or "a temporary file"
        return f"{part}in {place}, {in_words(store.taken_bytes)}"

    def _keep(self, index: int, sample: Any) -> int:
        state = filling.keep(self._store, index, sample)
        if state == NO_ROOM and not self._may_overflow:
            self._may_overflow = True  # said once
            _warn_full(self._store)
        return state


def copies_of(
    source: Any, samples: int, probed: Probe, wishes: Wishes, key: str | None, *, show: bool
) -> Copies:
    """Find or make the store for a dataset and fill it, unless it is to be filled lazily."""
    if key is None:
        name = partial(key_of, source, samples, list(probed.samples.values()))
    else:
        name = partial(key_from, key, samples)
    needs = Needs(probed.layout, samples, probed.blob_bytes)
    home = find_home(needs, wishes, name)
    try:
        for index, sample in probed.samples.items():
            if index < home.store.plan.held:
                filling.keep(home.store, index, sample)
        if not wishes.lazy and not _fill(home, source, wishes, show):
            home = _moved(home, source, needs, wishes, name, show)
    except BaseException:  # also Ctrl-C: nothing half-filled stays
        home.abandon()
        raise
    return Copies(source, samples, home, may_overflow=wishes.over_budget == "partial")


def _fill(home: Home, source: Any, wishes: Wishes, show: bool) -> bool:
    """Fill a store; False where it must move to a larger home."""
    store = home.store
    may_move = wishes.over_budget == "disk" and not store.region.on_disk and not home.is_shared
    is_error = wishes.over_budget == "error"
    rank = ranks.local_rank() or 0
    fits = filling.fill(
        store,
        source,
        first=rank / ranks.local_ranks() % 1,
        stop_when_full=is_error or may_move,
        show=show and rank == 0,
    )
    if not fits and is_error:
        filled = int(np.count_nonzero(store.states))
        raise too_large(store.plan.samples, store.taken_bytes / filled * store.plan.samples, wishes.budget)
    if not fits and wishes.over_budget == "disk" and not may_move:  # ranks cannot move house together
        _warn_full(store)
    return fits or not may_move


def _moved(
    home: Home, source: Any, needs: Needs, wishes: Wishes, name: Callable[[], str], show: bool
) -> Home:
    """Move to a file, when a dataset turns out to be larger than its first samples had made it look."""
    on_disk = find_home_on_disk(needs, wishes, name)
    try:
        filling.fill(on_disk.store, _Either(home.store, source), show=show)
    except BaseException:  # also Ctrl-C: nothing half-filled stays
        on_disk.abandon()
        raise
    return on_disk


def _warn_full(store: Store) -> None:
    warnings.warn(
        f"the cache is full at {in_words(store.taken_bytes)}: samples that are not in it are read from the"
        " dataset each time; give it a larger budget=",
        stacklevel=5,
    )


@dataclass(frozen=True)
class _Either:
    """Samples from a store, where they are there, or from their source."""

    store: Store
    source: Any

    def __getitem__(self, index: int) -> Any:
        return self.store.get(index) if self.store.states[index] in (ROW, ODD) else self.source[index]


def _finish(home: Home) -> None:
    with suppress(OSError):  # at the end of a program there is nobody to tell
        home.finish()


def _arrived(source: Any, samples: int, store: Store, may_overflow: bool) -> Copies:
    """Put together in another process what was taken apart for it."""
    return Copies(source, samples, Home(store), may_overflow)
