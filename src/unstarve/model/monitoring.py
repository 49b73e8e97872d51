"""What a monitor sees while training goes on: windows of steps, changes between them, metrics to export."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from unstarve.model.causes import Cause
from unstarve.words import duration, percent


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive steps; times are means per step unless the name says otherwise."""

    first_step: int
    """From 1: the first batch that the loader delivered."""
    last_step: int
    begin_ns: int
    end_ns: int
    wait_s: float
    wait_p95_s: float
    step_s: float
    samples: int | None
    """In the whole window; None if the batch size is unknown."""

    @property
    def steps(self) -> int:
        return self.last_step - self.first_step + 1

    @property
    def wait_share(self) -> float | None:
        return min(self.wait_s / self.step_s, 1.0) if self.step_s > 0 else None

    @property
    def steps_per_s(self) -> float | None:
        return 1 / self.step_s if self.step_s > 0 else None

    @property
    def samples_per_s(self) -> float | None:
        total_s = self.step_s * self.steps
        return self.samples / total_s if self.samples is not None and total_s > 0 else None


@dataclass(frozen=True, slots=True)
class RegimeChange:
    """The wait for data has changed and stayed changed for a while."""

    loader: str
    since_step: int
    """First step of the new regime, to within a window."""
    noticed_step: int
    before_wait_ms: float
    """Per step; typical of the regime before."""
    after_wait_ms: float
    before_wait_share: float
    """Of the step."""
    after_wait_share: float
    cause: Cause | None = None
    """Where the difference is spent; None unless this process is being recorded."""

    @property
    def grew(self) -> bool:
        return self.after_wait_ms > self.before_wait_ms

    @property
    def ratio(self) -> float:
        """The wait after divided by the wait before; infinite if that was 0."""
        return self.after_wait_ms / self.before_wait_ms if self.before_wait_ms > 0 else float("inf")

    def __str__(self) -> str:
        verb = "has grown" if self.grew else "has shrunk"
        because = (
            "" if self.cause is None else f"; {'more' if self.grew else 'less'} time goes to {self.cause}"
        )
        return (
            f"{self.loader}: since step {self.since_step:,} the wait for data {verb} from "
            f"{duration(self.before_wait_ms / 1e3)} to {duration(self.after_wait_ms / 1e3)} a step "
            f"({percent(self.before_wait_share)} to {percent(self.after_wait_share)} of the time){because}"
        )


class MetricKind(StrEnum):
    """How a number changes."""

    COUNTER = "counter"
    """Only grows; starts over with the process."""
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Metric:
    """One number, named by Prometheus' convention: the unit is in the name, counters end in ``_total``."""

    name: str
    kind: MetricKind
    help: str
    """What it counts, in one sentence."""
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
