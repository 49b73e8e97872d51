"""The ranks of a distributed training: who waits for data, and who makes the others wait."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RankPattern(StrEnum):
    """How the ranks of a training hold each other up."""

    EVEN = "even"
    """No rank holds the others up for long."""
    FIXED = "fixed"
    """The same rank is late in most of the late steps."""
    NODE = "node"
    """The ranks of one machine are."""
    ROTATING = "rotating"
    """Every rank is late at times: loading is slow or uneven everywhere."""
    PAUSE = "pause"
    """A few steps hold most of the lost time."""


@dataclass(frozen=True, slots=True)
class RankTimes:
    """One rank, over the steps that all ranks took."""

    rank: int
    host: str
    wait_share: float
    """Of its time: it waited for data."""
    late_share: float
    """Of the steps: it was the last to have its batch, and clearly so."""
    wait_ms: float
    """Mean wait of a step."""


@dataclass(frozen=True, slots=True)
class RankSummary:
    """How the ranks of one training got along."""

    pattern: RankPattern
    late: tuple[int, ...]
    """The ranks that hold the others up; empty for `even` and `rotating`."""
    steps: int
    """Steps that all ranks took."""
    step_ms: float
    """Mean step of the job."""
    even_ms: float
    """The same if no rank waited longer than the median rank."""
    free_ms: float
    """The same if loading were free on all ranks."""
    by_rank: tuple[RankTimes, ...]
