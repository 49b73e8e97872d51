"""Whether fetching samples draws random numbers: a dataset that does must not be cached.

The states of the global generators are compared before and after the first fetches. They are only read.
"""

from __future__ import annotations

import random
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

_LOOKS = 4
"""Fetches of each loader that are watched; a random transform draws in every one of them."""

_LIBRARIES = ("torch", "python", "numpy")

Streams = tuple[Any, ...]
"""The state of the generators of `_LIBRARIES`."""


class DrawWatch:
    """Watches the first fetches of each loader of one process, and notes what it found."""

    __slots__ = ("_first", "_looks", "_note", "_noted")

    def __init__(self, note: Callable[..., None]) -> None:
        self._note = note
        self._looks: Counter[int] = Counter()
        self._noted: dict[int, bool] = {}
        self._first: dict[int, Streams] = {}
        """The state before the first fetch."""

    def before(self, loader: int) -> Streams | None:
        """The state before a fetch; None when enough was seen of this loader."""
        if self._looks[loader] >= _LOOKS:
            return None
        self._looks[loader] += 1
        streams = random_streams()
        if streams is not None:
            self._first.setdefault(loader, streams)
        return streams

    def after(self, loader: int, before: Streams) -> None:
        """Compare with the state now, and write down what is new."""
        now = random_streams()
        if now is None:
            return
        drew, known = now != before, self._noted.get(loader)
        if known is None or (drew and not known):
            self._noted[loader] = drew
            self._note("draws", loader=loader, drew=drew)
            if drew:
                states = zip(_LIBRARIES, self._first.pop(loader), before, now, strict=True)
                self._note("streams", **{name: _digest(s) if b != n else None for name, s, b, n in states})


def random_streams() -> Streams | None:
    """The state of torch's, Python's and numpy's global generators; None where one cannot be read."""
    try:
        numpy = sys.modules.get("numpy.random")
        theirs = None if numpy is None else numpy.get_state(legacy=False)
        return (
            torch.default_generator.get_state().numpy().tobytes(),
            random.getstate(),
            None if theirs is None else (_plain(theirs["state"]), theirs.get("has_gauss")),
        )
    except Exception:  # a generator of another kind, or one that was replaced: then it is not known
        return None


def _digest(stream: Any) -> int:
    return zlib.crc32(repr(stream).encode())


def _plain(state: dict[str, Any]) -> list[Any]:
    return [value.tobytes() if hasattr(value, "tobytes") else value for value in state.values()]
