"""Spans → seconds per cause. The seconds sum to the wall time by construction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from unstarve.analyze.batch_production import EpochProduction
from unstarve.analyze.blame import Seconds, blame
from unstarve.analyze.timeline import TimeSpan
from unstarve.model import Batch, Cause, Doing, GpuSummary, Process, Sampled, Share

_FEWEST_SAMPLED_S = 0.5
"""With less sampled time than this, steps are not split."""
_ONLY_WAITS = 0.95
"""Share of the sampled time."""


def causes_of(
    spans: Sequence[TimeSpan], process: Process, made: Mapping[tuple[int, int], EpochProduction]
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
        elif span.doing is Doing.BETWEEN:
            seconds[Cause.HOST] += span.seconds
        else:
            for cause, part_s in beginning_causes(span).items():
                seconds[cause] += part_s
    for cause, part_s in split_steps(step_s, step_queued_s(spans), process).items():
        seconds[cause] += part_s
    return {cause: value for cause, value in seconds.items() if value > 0}


def wait_causes(span: TimeSpan, batch: Batch, made: Mapping[tuple[int, int], EpochProduction]) -> Seconds:
    """Seconds per cause of one wait, or of the part that the span covers."""
    parts = blame(batch, made.get((batch.loader, batch.epoch)))
    share = span.seconds / (batch.wait_ns / 1e9) if batch.wait_ns else 0.0
    return {cause: part_s * share for cause, part_s in parts.items()}


def beginning_causes(span: TimeSpan) -> Seconds:
    """Seconds per cause of an ``iter()`` or of the end of an epoch."""
    sampler_s = span.sampler_ns / 1e9
    return {Cause.SAMPLER: sampler_s, Cause.STARTUP: span.seconds - sampler_s}


def split_steps(step_s: float, queued_s: float, process: Process) -> Seconds:
    """Seconds of the steps: computing, the loop's own Python, or waiting for a core."""
    contention_s = min(queued_s, step_s)
    sampled = [found for found in process.sampled if found.place == "step"]
    sampled_s = sum(found.seconds for found in sampled)
    host_s = 0.0
    if sampled_s >= _FEWEST_SAMPLED_S and not _stands_for_a_device(sampled, sampled_s):
        host_share = sum(found.seconds for found in sampled if not found.torch) / sampled_s
        host_s = host_share * (step_s - contention_s)
    return {
        Cause.CONTENTION: contention_s,
        Cause.HOST: host_s,
        Cause.COMPUTE: step_s - contention_s - host_s,
    }


def _stands_for_a_device(sampled: Sequence[Sampled], sampled_s: float) -> bool:
    """Whether steps only wait and never compute: for a device driven elsewhere, or a sleep that mimics one.

    There is no other work that the loop's own Python could be delaying.
    """
    waiting_s = sum(found.seconds for found in sampled if not found.on_cpu)
    return waiting_s >= _ONLY_WAITS * sampled_s and not any(found.torch for found in sampled)


def seen_by_device(
    seconds: Mapping[Cause, float], waits: Mapping[Cause, float], wait_share: float | None, gpu: GpuSummary
) -> Seconds:
    """The same wall time from the accelerator's point of view.

    A wait during which the device still had work counts as computing. Idle time that is not a stall counts as
    ``host``, and no other part of the steps does.
    """
    total_s = sum(seconds.values())
    changed = dict(seconds)
    if gpu.stall_share is not None and wait_share:
        hidden = max(1 - gpu.stall_share / wait_share, 0.0)
        for cause, wait_s in waits.items():
            changed[cause] = max(changed.get(cause, 0.0) - wait_s * hidden, 0.0)
            changed[Cause.COMPUTE] = changed.get(Cause.COMPUTE, 0.0) + wait_s * hidden
    step_s = changed.get(Cause.COMPUTE, 0.0) + changed.get(Cause.HOST, 0.0)
    if gpu.host_late_share is not None:
        changed[Cause.HOST] = min(gpu.host_late_share * total_s, step_s)
        changed[Cause.COMPUTE] = step_s - changed[Cause.HOST]
    return {cause: value for cause, value in changed.items() if value > 0}


def device_steps(gpu: GpuSummary, measured_s: float) -> Seconds:
    """Seconds an accelerator spent computing, or idle because the host was late."""
    host_late = gpu.host_late_share or 0.0
    busy = 1 - (gpu.idle_share if gpu.idle_share is not None else gpu.stall_share or 0.0)
    return {Cause.HOST: host_late * measured_s, Cause.COMPUTE: busy * measured_s}


def step_queued_s(spans: Iterable[TimeSpan]) -> float:
    """Seconds between waits in which the training thread was runnable but had no core."""
    return sum((span.batch.step_queued_ns or 0) for span in spans if span.batch is not None) / 1e9


def as_shares(seconds: Mapping[Cause, float], total_s: float | None = None) -> tuple[Share, ...]:
    """The budget, largest share first; with `total_s` the seconds sum to it."""
    total = sum(seconds.values())
    scale = 1.0 if total_s is None or not total else total_s / total
    shares = [Share(cause, value * scale, value / total) for cause, value in seconds.items() if total]
    return tuple(sorted(shares, key=lambda share: -share.seconds))
