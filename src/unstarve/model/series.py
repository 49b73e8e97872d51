"""A run step by step, for charts over steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from unstarve.model.causes import Cause


class StepPoint(NamedTuple):
    """One delivered batch and the step that ended with it."""

    got_ns: int
    """When it was delivered, by the process's clock."""
    wait_s: float
    step_s: float | None
    """Since the delivery before it in the same epoch; None for an epoch's first."""
    stall_s: float | None
    """Part of the wait in which the device was idle; on a CPU the wait itself."""
    size: int | None
    ready: int | None
    """Batches that were ready when it was requested."""
    causes: Mapping[Cause, float]
    """Seconds of the wait."""

    @property
    def stall_share(self) -> float | None:
        """Share of the step, at most 1."""
        if self.stall_s is None or not self.step_s:
            return None
        return min(self.stall_s / self.step_s, 1.0)

    @property
    def samples_per_s(self) -> float | None:
        return self.size / self.step_s if self.size is not None and self.step_s else None


@dataclass(frozen=True, slots=True)
class Series:
    """All batches that one loader delivered to the training thread of one process."""

    rank: int | None
    pid: int
    loader: str
    main: bool
    """The loader that sets the pace of training; others are used now and then."""
    clock_offset_ns: int
    """Add to `StepPoint.got_ns` to get nanoseconds since 1970."""
    points: tuple[StepPoint, ...]
    waits: Mapping[Cause, float]
    """Seconds of waiting per cause, over all points."""
    step_s: float
    """Total of all steps of known duration."""
    stall_s: float | None
    """Total during those steps; None when unknown for some of them."""

    @property
    def samples(self) -> int | None:
        """None when the size of a batch is unknown."""
        sizes = [point.size for point in self.points]
        return None if None in sizes else sum(size for size in sizes if size)
