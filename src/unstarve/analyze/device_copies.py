"""Steps whose copies were timed → what copies to the device cost the whole training."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from unstarve.analyze.stats import number_of
from unstarve.analyze.timeline import Timeline
from unstarve.model import Cause, CopyKind, CopySummary, GpuSummary, StepCopies
from unstarve.words import counted, duration, percent, size, times

_FEWEST_STEPS = 5
_WORTH_TELLING = 0.05
"""Share of the measured time."""
_MUCH_BYTES_PER_S = 1e9
"""At the 7 GB/s that bench/to_device.py saw from pageable memory, that takes a seventh of the time."""


def summarize_copies(timelines: Sequence[Timeline]) -> CopySummary | None:
    """The `copies` block of the report; None when too few measured steps were looked at."""
    seen = [(timeline, _measured(timeline)) for timeline in timelines]
    seen = [(timeline, steps) for timeline, steps in seen if len(steps) >= _FEWEST_STEPS]
    measured_s = sum(timeline.measured_s for timeline, _ in seen)
    if not measured_s:
        return None
    copied_s = sum(_critical_s(steps) * number_of(timeline.measured_batches) for timeline, steps in seen)
    rows = [row for _, steps in seen for step in steps for row in step if row.copies]
    share = min(copied_s / measured_s, 1.0)
    return CopySummary(sum(len(steps) for _, steps in seen), share, _kinds(rows))


def _measured(timeline: Timeline) -> list[list[StepCopies]]:
    """The rows of each measured step whose copies were timed, in the order of time."""
    begins = [span.begin_ns for span in timeline.measured]
    ends = [span.end_ns for span in timeline.measured]
    steps: defaultdict[int, list[StepCopies]] = defaultdict(list)
    for row in timeline.process.copies:
        place = bisect_left(ends, row.end_ns)
        if row.loader == timeline.main and place < len(ends) and begins[place] <= row.end_ns:
            steps[row.begin_ns].append(row)
    return [steps[begin_ns] for begin_ns in sorted(steps)]


def _critical_s(steps: Sequence[Sequence[StepCopies]]) -> float:
    """Seconds of the mean step in which training's stream copied, on the device where that is the most.

    Pauses between timed steps grow: each stands for the time until the next one.
    """
    weights = [after[0].begin_ns - step[0].begin_ns for step, after in pairwise(steps)]
    weights.append(weights[-1])
    by_device: defaultdict[int, float] = defaultdict(float)
    for step, weight in zip(steps, weights, strict=True):
        for row in step:
            if not row.beside:
                by_device[row.device] += row.device_ns * weight
    return max(by_device.values(), default=0.0) / sum(weights) / 1e9


def _kinds(rows: Sequence[StepCopies]) -> tuple[CopyKind, ...]:
    found: defaultdict[tuple[int, bool, bool, bool], list[StepCopies]] = defaultdict(list)
    for row in rows:
        found[row.device, row.pinned, row.pinned and row.non_blocking, row.beside].append(row)
    kinds = [
        CopyKind(
            device,
            "pinned" if pinned else "pageable",
            not ahead,
            beside,
            sum(row.copies for row in some),
            sum(row.nbytes for row in some),
            sum(row.device_ns for row in some) / 1e9,
            sum(row.host_ns for row in some) / 1e9,
        )
        for (device, pinned, ahead, beside), some in found.items()
    ]
    return tuple(sorted(kinds, key=lambda kind: -kind.seconds))


def without_copies(gpu: GpuSummary | None, copies: CopySummary | None) -> GpuSummary | None:
    """The driver's utilization counts kernels alone: while a copy runs, the host is not late."""
    if gpu is None or copies is None or gpu.host_late_share is None:
        return gpu
    return dataclasses.replace(gpu, host_late_share=max(gpu.host_late_share - copies.share, 0.0))


def bill_copies(seconds: Mapping[Cause, float], copies: CopySummary | None) -> dict[Cause, float]:
    """The same seconds; copies on the critical path are no computing."""
    if copies is None or not copies.share:
        return dict(seconds)
    computed_s = seconds.get(Cause.COMPUTE, 0.0)
    copied_s = min(copies.share * sum(seconds.values()), computed_s)
    billed = {**seconds, Cause.COMPUTE: computed_s - copied_s, Cause.COPY: copied_s}
    return {cause: value for cause, value in billed.items() if value > 0}


def copy_evidence(copies: CopySummary | None, gpu: GpuSummary | None) -> list[str]:
    """A sentence on each kind of copy that takes long, or on copies that may, where nobody timed them."""
    if copies is None and gpu is not None and (gpu.received_bytes_per_s or 0.0) >= _MUCH_BYTES_PER_S:
        rate = size(gpu.received_bytes_per_s or 0.0)
        return [f"the GPU receives {rate}/s; `unstarve run --copies` measures what its copies cost"]
    if copies is None or copies.share < _WORTH_TELLING:
        return []
    critical = [kind for kind in copies.kinds if not kind.overlapped]
    total_s = sum(kind.seconds for kind in critical)
    return [
        f"in {counted(copies.steps, 'step')} whose copies were timed, GPU {kind.device} received "
        f"{size(kind.bytes / copies.steps)} a step from {kind.memory} memory in "
        f"{duration(kind.seconds / copies.steps)}; {_host(kind, copies.steps)}"
        for kind in critical
        if kind.seconds >= _WORTH_TELLING * total_s
    ]


def _host(kind: CopyKind, steps: int) -> str:
    spent = duration(kind.host_s / steps)
    return f"the host waited for it, {spent}" if kind.blocking else f"the host spent {spent} on it"


def copies_headline(copies: CopySummary) -> str:
    """Of a training whose device is kept waiting by copies more than by its loader."""
    gain = times(1 / max(1 - copies.share, 0.01))
    return (
        f"Training is copy-bound: copies from the host keep the GPU waiting {percent(copies.share)} of the "
        f"time. Without that, training would run about {gain} as fast."
    )
