"""Numbers for the loaders of a process: which of them are one and the same to the user."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

_MOST_LENGTHS = 4
"""Train, validation and test sets differ in length; more lengths than this vary from epoch to epoch."""


@dataclass
class _Known:
    loader: weakref.ref[Any]
    length: int | None
    """Of its dataset when it was first iterated."""


class LoaderNumbers:
    """Numbers loaders from 0; a loader that replaces another has its number."""

    def __init__(self) -> None:
        self._like: dict[str, dict[int, _Known]] = {}
        self._count = 0

    def number(self, like: str, loader: Any, length: int | None, *, anew: bool) -> tuple[int, bool]:
        """The number of this loader, and whether it is new.

        `like` is equal for loaders that one line creates with the same arguments. Of those, a loader takes
        the number of one that is gone if their datasets have the same length, so that a training and a
        validation set stay apart. With `anew` it takes the number of one that still exists, too.
        """
        known = self._like.setdefault(like, {})
        for number, one in known.items():
            if one.loader() is loader:
                return number, False
        lengths = {one.length for one in known.values()}
        for number, one in known.items():
            replaceable = anew or one.loader() is None
            if replaceable and (one.length == length or len(lengths) >= _MOST_LENGTHS):
                one.loader = weakref.ref(loader)
                return number, False
        number = self._count
        self._count += 1
        known[number] = _Known(weakref.ref(loader), length)
        return number, True
