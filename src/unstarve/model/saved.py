"""Loader settings that are kept in a file, and the place in the user's source that each belongs to."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

NEED_WORKERS: Mapping[str, Any] = {
    "prefetch_factor": None,
    "persistent_workers": False,
    "timeout": 0,
    "multiprocessing_context": None,
}
"""Arguments that torch refuses without workers, and the value of each that it takes then."""


IMAGES = "images"
"""A setting that is no argument of a loader: unstarve reads the images of its image folder, in threads."""

POSITIONS = (
    "dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory",
    "drop_last", "timeout", "worker_init_fn", "multiprocessing_context", "generator",
)  # fmt: skip
"""Arguments of ``DataLoader`` that may be given without their name, in this order."""

Setting = int | bool


@dataclass(frozen=True, slots=True)
class Span:
    """From where to where something is written; lines count from 1, columns are bytes of UTF-8 from 0."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a loader was made. A line moves when the file is edited, so that more is kept to know it by."""

    file: str
    line: int
    function: str | None = None
    """Qualified name of the function around it, ``<module>`` at the top of a file."""
    name: str | None = None
    """The variable that the loader is assigned to."""
    call: str | None = None
    """Digest of the call's text without its white space."""
    span: Span | None = None
    """Of the call, in the file as it was when the loader was made; not kept with saved settings."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class SavedLoader:
    """Arguments for the loaders that are made at one place."""

    place: Place
    settings: Mapping[str, Setting]

    def agreement(self, place: Place) -> int:
        """How surely a loader made at `place` is the one meant; 0 when it is not.

        Two of line, variable and call have to agree, or the call and the function around it: a loader next to
        the one that was saved, now on its line, is not taken for it. An entry without the call was written by
        hand: its line has to agree, and whatever else it says.
        """
        if not _same_file(self.place.file, place.file):
            return 0
        line, name = self.place.line == place.line, self.place.name == place.name
        if self.place.call is None:
            said = [(self.place.name, place.name), (self.place.function, place.function)]
            return int(line and all(ours in (None, theirs) for ours, theirs in said))
        call = self.place.call == place.call and place.call is not None
        function = self.place.function == place.function
        agreeing = line + name + call
        return 2 * agreeing + function if agreeing >= 2 or (call and function) else 0


def best_match(saved: Sequence[SavedLoader], place: Place) -> int | None:
    """Index of the entry for a loader made at `place`; among equals, the one with the nearest line."""
    ranked = [
        (one.agreement(place), -abs(one.place.line - place.line), -index) for index, one in enumerate(saved)
    ]
    best = max(ranked, default=(0, 0, 0))
    return -best[2] if best[0] else None


def saved_from_plain(fields: Mapping[str, Any]) -> SavedLoader:
    """What ``dataclasses.asdict`` made of one."""
    return SavedLoader(place_from_plain(fields["place"]), dict(fields["settings"]))


def place_from_plain(fields: Mapping[str, Any]) -> Place:
    """The same for a place."""
    span = fields.get("span")
    return Place(**{**fields, "span": None if span is None else Span(**span)})


def moved_to(place: Place, file: str) -> Place:
    """The same place, its file named otherwise."""
    return dataclasses.replace(place, file=file)


def _same_file(saved: str, actual: str) -> bool:
    """Whether both may name one file: a relative path goes by how the other ends."""
    ours, theirs = PurePath(saved), PurePath(actual)
    if ours.is_absolute() and theirs.is_absolute():
        return ours == theirs
    shorter = min(len(ours.parts), len(theirs.parts))
    return ours.parts[-shorter:] == theirs.parts[-shorter:]
