"""The mean step in two parts that never overlap: its own time, and the time lost to data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from unstarve.analyze.timeline import Timeline
from unstarve.model import GpuSummary


class Lost(Enum):
    """Whose time is lost to data."""

    WAIT = auto()
    """Of a training on a CPU: the wait is the stall."""
    HOST = auto()
    """The host's; whether the accelerator still had work is not known."""
    GPU = auto()
    """The GPU's, by its own clock."""


@dataclass(frozen=True, slots=True)
class MeanStep:
    """`own_s` and `lost_s` add up to the time from one delivered batch to the next."""

    steps: int
    """Number of steps behind these means."""
    own_s: float
    lost_s: float
    """Starved, by the GPU's clock, where that is known; otherwise waited."""


def lost_by(timelines: Sequence[Timeline], gpu: GpuSummary | None) -> Lost:
    """Which of the clocks the time lost to data is from."""
    if all(timeline.process.device == "cpu" for timeline in timelines):
        return Lost.WAIT
    return Lost.HOST if gpu is None or gpu.stall_share is None else Lost.GPU


def mean_step(timelines: Sequence[Timeline], gpu: GpuSummary | None) -> MeanStep | None:
    """Over the measured steps of all ranks; None when there is none."""
    steps = [step for timeline in timelines for step in timeline.steps]
    if not steps:
        return None
    number = sum(step.number for step in steps)
    lost_s = sum(step.wait_s for step in steps) / number
    wait_s = sum(timeline.wait_s for timeline in timelines)
    if gpu is not None and gpu.stall_share is not None and wait_s:
        # While the host waits and the GPU still computes, the step goes on.
        lost_s *= min(gpu.stall_share * sum(timeline.measured_s for timeline in timelines) / wait_s, 1.0)
    return MeanStep(number, sum(step.seconds for step in steps) / number - lost_s, lost_s)
