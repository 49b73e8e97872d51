"""What a training loop did that iterated no loader."""

from __future__ import annotations

from typing import NamedTuple


class LoopPlace(NamedTuple):
    """Where a training without a loader spent its time: a function of the user, or a line of the loop."""

    name: str
    file: str
    line: int
    seconds: float


class BatchFunction(NamedTuple):
    """What gave a training without a loader its batches."""

    kind: str
    """``function``, ``method`` or ``generator``."""
    name: str
    """As the loop calls it."""
    file: str
    line: int
    """First line of its definition; of the loop for a generator."""
    text: str
    """Of a generator: the line of the loop."""
    seconds: float
    """Spent in it."""


class LoopProfile(NamedTuple):
    """What the training loop of a process did that iterated no loader."""

    seconds: float
    """Of the loop that were looked at."""
    places: tuple[LoopPlace, ...]
    """Costliest first."""
    batches: BatchFunction | None
