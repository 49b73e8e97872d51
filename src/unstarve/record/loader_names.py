"""Names for loaders that one line of the script creates: ``train_loader (1st of 2)``."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath

from unstarve.model import Loader, Process
from unstarve.words import ordinal

Line = tuple[str, str]
"""Name and place of loaders: the same for all loaders that a helper function creates."""

_NUMBERED = re.compile(r"loader \d+")
_MOST_COMPARED = 100
"""Loaders of one line that are compared by dataset; more than this are only counted."""


def tell_apart(processes: Iterable[Process]) -> list[Process]:
    """The processes with a different name for each loader that one of them has created at one line.

    Loaders are counted in the order of their creation. A rank that iterates only some of them, say because it
    does not validate, is compared by dataset with the rank that iterates most.
    """
    known = list(processes)
    lines = [_by_line(process.loaders) for process in known]
    most: dict[Line, list[Loader]] = {}
    for found in lines:
        for line, loaders in found.items():
            if len(loaders) > len(most.get(line, ())):
                most[line] = loaders
    return [_renamed(process, found, most) for process, found in zip(known, lines, strict=True)]


def _by_line(loaders: Sequence[Loader]) -> dict[Line, list[Loader]]:
    found: defaultdict[Line, list[Loader]] = defaultdict(list)
    for loader in sorted(loaders, key=lambda one: (one.created or 0, one.id)):
        found[_base(loader), loader.where].append(loader)
    return found


def _base(loader: Loader) -> str:
    """Its name; without a variable, where it was created instead of the recorder's number."""
    return f"loader at {PurePath(loader.where).name}" if _NUMBERED.fullmatch(loader.name) else loader.name


def _renamed(process: Process, lines: dict[Line, list[Loader]], most: dict[Line, list[Loader]]) -> Process:
    names: dict[int, str] = {}
    for line, loaders in lines.items():
        places = most[line]
        if len(places) > 1:
            for loader, place in zip(loaders, _places(loaders, places), strict=True):
                names[loader.id] = f"{_base(loader)} ({ordinal(place + 1)} of {len(places)})"
    if not names:
        return process
    told = tuple(replace(one, name=names.get(one.id, one.name)) for one in process.loaders)
    return replace(process, loaders=told)


def _places(loaders: Sequence[Loader], among: Sequence[Loader]) -> list[int]:
    """For each loader, the place of the loader with the same dataset; else the first place that is left."""
    if len(loaders) == len(among) or len(among) > _MOST_COMPARED:
        return list(range(len(loaders)))
    free = dict(enumerate(_dataset(one) for one in among))
    places = []
    for loader in loaders:
        place = next((n for n, dataset in free.items() if dataset == _dataset(loader)), min(free))
        places.append(place)
        del free[place]
    return places


def _dataset(loader: Loader) -> tuple[object, object]:
    return loader.config.get("dataset"), loader.config.get("dataset_len")
