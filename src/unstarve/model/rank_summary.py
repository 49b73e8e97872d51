"""The ranks of a distributed training: who waits for data, and who makes the others wait."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RankPattern(StrEnum):
    """How the ranks of a training hold each other up."""

    EVEN = "even"
    """No rank holds the others up for long."""
    FIXED = "fixed"
    """The same rank, or the same few, are late in most of the late steps."""
    NODE = "node"
    """The ranks of one machine are."""
    ROTATING = "rotating"
    """Every rank is late at times."""
    PAUSE = "pause"
    """A few steps hold most of the lost time."""


class RankReason(StrEnum):
    """What late ranks do longer than the others."""

    DATA = "data"
    """They wait for their batch."""
    FORWARD = "forward"
    """They take longer from the batch to the backward pass, or to the exchange in a step without one."""
    BACKWARD = "backward"
    """They compute gradients longer, without the time in which they wait for other ranks."""
    AFTER = "after"
    """They take longer from the exchange to the next batch: optimizer, logging, a checkpoint."""
    VALIDATION = "validation"
    """They validate, or validate longer."""
    SIZE = "size"
    """Their batches are larger: longer texts, larger images."""
    CORES = "cores"
    """They are runnable and have no core."""
    UNKNOWN = "unknown"
    """Where ranks meet was not recorded, and loading is not the reason."""


@dataclass(frozen=True, slots=True)
class RankTimes:
    """One rank, over the steps that all ranks took. Times are means of a step."""

    rank: int
    host: str
    wait_share: float
    """Of its time: it waited for data."""
    late_share: float
    """Of the steps: it was the last to arrive where ranks meet, and clearly so."""
    wait_ms: float
    """For data."""
    work_ms: float
    """From the batch to the next request for one, without waiting for other ranks."""
    blocked_ms: float | None
    """For other ranks, and for the exchange itself; None where that was not recorded."""
    lost_ms: float
    """How much sooner a step would end if this rank were never late."""


@dataclass(frozen=True, slots=True)
class RankHeat:
    """When each rank made the others wait: a row per rank, a column per stretch of the steps."""

    stretch_steps: int
    """Steps of a column."""
    longest_ms: float
    """What 100 stands for: milliseconds lost in each step of the column."""
    rows: tuple[tuple[int, ...], ...]
    """In the order of `RankSummary.by_rank`, 0 to 100."""


@dataclass(frozen=True, slots=True)
class RankSummary:
    """How the ranks of one training got along."""

    pattern: RankPattern
    late: tuple[int, ...]
    """The ranks that hold the others up; empty for `even` and `rotating`."""
    reason: RankReason | None
    """What they do longer; None when no rank is late."""
    every: int | None
    """Pauses come after so many steps; None when they are not periodic."""
    arrivals: bool
    """Whether it was recorded how long each rank was blocked where ranks meet."""
    steps: int
    """Steps that all ranks took."""
    step_ms: float
    """Mean step of the job."""
    even_ms: float
    """The same if no rank arrived later than the median rank."""
    free_ms: float
    """The same if loading were free on all ranks."""
    by_rank: tuple[RankTimes, ...]
    heat: RankHeat | None = None
