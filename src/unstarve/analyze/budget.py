"""Spans → seconds per cause. The seconds sum to the wall time by construction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from unstarve.analyze.blame import Seconds, blame
from unstarve.analyze.making import Production
from unstarve.analyze.timeline import Doing, Span
from unstarve.model import Batch, Cause, Process, Share

_FEWEST_SAMPLED_S = 0.5
"""Below this much sampled time, what a step did is not told apart."""


def causes_of(
    spans: Sequence[Span], process: Process, made: Mapping[tuple[int, int], Production]
) -> dict[Cause, float]:
    """Seconds per cause of one training process."""
    seconds: defaultdict[Cause, float] = defaultdict(float)
    step_s = 0.0
    for span in spans:
        if span.batch is not None:
            for cause, part_s in wait_causes(span, span.batch, made).items():
                seconds[cause] += part_s
        elif span.doing is Doing.STEP:
            step_s += span.seconds
        else:
            seconds[Cause.HOST if span.doing is Doing.BETWEEN else Cause.STARTUP] += span.seconds
    for cause, part_s in split_steps(step_s, step_queued_s(spans), process).items():
        seconds[cause] += part_s
    return {cause: value for cause, value in seconds.items() if value > 0}


def wait_causes(span: Span, batch: Batch, made: Mapping[tuple[int, int], Production]) -> Seconds:
    """Seconds per cause of one wait, or of the part of it that the span covers."""
    parts = blame(batch, made.get((batch.loader, batch.epoch)))
    share = span.seconds / (batch.wait_ns / 1e9) if batch.wait_ns else 0.0
    return {cause: part_s * share for cause, part_s in parts.items()}


def split_steps(step_s: float, queued_s: float, process: Process) -> Seconds:
    """The steps themselves: computing, the loop's own Python, or waiting for a core."""
    contention_s = min(queued_s, step_s)
    sampled = [found for found in process.sampled if found.place == "step"]
    sampled_s = sum(found.seconds for found in sampled)
    host_s = 0.0
    if sampled_s >= _FEWEST_SAMPLED_S:
        host_share = sum(found.seconds for found in sampled if not found.torch) / sampled_s
        host_s = host_share * (step_s - contention_s)
    return {
        Cause.CONTENTION: contention_s,
        Cause.HOST: host_s,
        Cause.COMPUTE: step_s - contention_s - host_s,
    }


def step_queued_s(spans: Iterable[Span]) -> float:
    """Seconds that the training thread was runnable without a core, between waits."""
    return sum((span.batch.step_queued_ns or 0) for span in spans if span.batch is not None) / 1e9


def as_shares(seconds: Mapping[Cause, float], ranks: int = 1) -> tuple[Share, ...]:
    """The budget, largest first; over several ranks, the mean of one."""
    total = sum(seconds.values())
    shares = [Share(cause, value / ranks, value / total) for cause, value in seconds.items() if total]
    return tuple(sorted(shares, key=lambda share: -share.seconds))
