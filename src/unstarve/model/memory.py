"""Memory over a run, as concluded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """One quantity over time; points where it was not known are left out."""

    name: str
    """``training``, ``workers`` or ``/dev/shm``."""
    at_s: tuple[float, ...]
    """Since the first event, as in every chart of the run."""
    bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MemorySummary:
    """Resident memory of a training and its workers on one machine; with several, that of the rank shown.

    What a forked worker shares with its parent is counted in both.
    """

    training_peak_bytes: int | None
    workers_peak_bytes: int | None
    """Of all workers together."""
    shm_peak_bytes: int | None
    """In use in /dev/shm, by anybody."""
    shm_total_bytes: int | None
    lines: tuple[MemoryLine, ...]
