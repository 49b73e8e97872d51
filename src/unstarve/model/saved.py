"""Saved loader settings, and the place in the user's source that they belong to."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from unstarve.model.loaders import Maker

NEED_WORKERS: Mapping[str, Any] = {
    "prefetch_factor": None,
    "persistent_workers": False,
    "timeout": 0,
    "multiprocessing_context": None,
}
"""Arguments that torch refuses without workers, each with the value that it accepts then."""

POSITIONS = (
    "dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory",
    "drop_last", "timeout", "worker_init_fn", "multiprocessing_context", "generator",
)  # fmt: skip
"""Positional arguments of ``DataLoader``, in order."""

Setting = int | bool


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of source text. Lines count from 1, columns are bytes of UTF-8 from 0."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a loader is created. Lines move when a file is edited, so more is kept to recognize it."""

    file: str
    line: int
    function: str | None = None
    """Qualified name of the enclosing function, ``<module>`` at the top level."""
    name: str | None = None
    """The variable that the loader is assigned to, or what a framework created it for."""
    call: str | None = None
    """Digest of the call's source text without white space."""
    span: Span | None = None
    """Of the call, in the file as it was when the loader was created; not saved."""
    dataset: str | None = None
    """Class and length of its dataset: ``Images[50000]``. Saved if the line creates several loaders."""
    nth: int | None = None
    """Its number among the line's loaders of such datasets, from 1. Saved if there are several."""
    maker: Maker | None = None
    """The framework that creates it; not saved."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class SavedLoader:
    """Arguments for the loaders created at one place."""

    place: Place
    settings: Mapping[str, Setting]

    def agreement(self, place: Place) -> int:
        """How well a loader created at `place` matches this entry; 0 if it does not.

        Two of line, variable and call must agree, or the call and its enclosing function: another loader that
        has moved to the saved line must not match. An entry without a call was written by hand: its line must
        agree, and everything else that it gives. If one line creates several loaders, dataset and number say
        which one it is; a name that is no variable says what a framework created it for.
        """
        if not _same_file(self.place.file, place.file) or not self._is_that_one(place):
            return 0
        line, name = self.place.line == place.line, self.place.name == place.name
        if self.place.call is None:
            said = [(self.place.name, place.name), (self.place.function, place.function)]
            return int(line and all(ours in (None, theirs) for ours, theirs in said))
        call = self.place.call == place.call and place.call is not None
        function = self.place.function == place.function
        agreeing = line + name + call
        return 2 * agreeing + function if agreeing >= 2 or (call and function) else 0

    def _is_that_one(self, place: Place) -> bool:
        """Whether the loader may be this one of several that its line creates."""
        ours, theirs = self.place, place
        told = not ((ours.name or "_").isidentifier() and (theirs.name or "_").isidentifier())
        return (
            ours.dataset in (None, theirs.dataset)
            and ours.nth in (None, theirs.nth)
            and (not told or ours.name in (None, theirs.name))
        )


def best_match(saved: Sequence[SavedLoader], place: Place) -> int | None:
    """Index of the entry for a loader created at `place`; of equal matches, the one with the nearest line."""
    ranked = [
        (one.agreement(place), -abs(one.place.line - place.line), -index) for index, one in enumerate(saved)
    ]
    best = max(ranked, default=(0, 0, 0))
    return -best[2] if best[0] else None


def saved_from_plain(fields: Mapping[str, Any]) -> SavedLoader:
    """The inverse of ``dataclasses.asdict``."""
    return SavedLoader(place_from_plain(fields["place"]), dict(fields["settings"]))


def place_from_plain(fields: Mapping[str, Any]) -> Place:
    """The inverse of ``dataclasses.asdict``."""
    span, maker = fields.get("span"), fields.get("maker")
    return Place(
        **{
            **fields,
            "span": None if span is None else Span(**span),
            "maker": None if maker is None else Maker(**maker),
        }
    )


def moved_to(place: Place, file: str) -> Place:
    """The same place with another path for its file."""
    return dataclasses.replace(place, file=file)


def _same_file(saved: str, actual: str) -> bool:
    """Whether both may name one file: a relative path must be the end of the other."""
    ours, theirs = PurePath(saved), PurePath(actual)
    if ours.is_absolute() and theirs.is_absolute():
        return ours == theirs
    shorter = min(len(ours.parts), len(theirs.parts))
    return ours.parts[-shorter:] == theirs.parts[-shorter:]
