"""The numbers behind a verdict, in sentences that a person can check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from unstarve.analyze.timeline import Timeline
from unstarve.model import Cause, Demand, Doing, GpuSummary
from unstarve.words import duration, percent, size, times, workers

_WORTH_TELLING = 0.05
_WORTH_TELLING_APART = 0.2


def evidence(
    timelines: Sequence[Timeline],
    cause: Cause,
    demand: Demand | None,
    gpu: GpuSummary | None = None,
    waits: Mapping[Cause, float] | None = None,
) -> tuple[str, ...]:
    """What was measured, then what points to the cause; `waits` are the seconds of waiting per cause."""
    lines = [*_steps(timelines), *_starts(timelines)]
    if cause is Cause.CONTENTION and waits:
        lines.insert(min(1, len(lines)), _missed_cores(waits))
        if demand is not None and _share(demand.queued_s, demand) < _WORTH_TELLING_APART:
            demand = None  # cores were missed elsewhere: while sending, say
    if demand is not None and cause in _BY_CAUSE:
        lines.insert(min(1, len(lines)), _BY_CAUSE[cause](demand))
    if any(timeline.process.device != "cpu" for timeline in timelines):
        lines += _device(gpu)
    return tuple(lines)


def _device(gpu: GpuSummary | None) -> list[str]:
    if gpu is None or gpu.stall_share is None:
        return ["waits are the host's: the accelerator may still have had queued work during them"]
    lines = [f"by its own clock the GPU starved for {percent(gpu.stall_share)} of the time"]
    if gpu.host_late_share is not None and gpu.host_late_share >= _WORTH_TELLING:
        lines.append(
            f"it was idle for another {percent(gpu.host_late_share)}: the host gave it work too late"
        )
    return lines


def walk(waits: bool, share: float | None, step_s: float | None, demand: Demand | None) -> tuple[str, ...]:
    """The questions people ask in turn, with this run's answers."""
    if share is None:
        return ()
    lines = [f"Does training wait?  {'yes' if waits else 'no'}: {percent(share)} of the time"]
    if demand is None or step_s is None:
        return tuple(lines)
    batch_s = demand.fetch_s + demand.collate_s + demand.handoff_s + demand.pin_s + demand.sampler_s
    # The training process draws the indices itself: no number of workers shares that.
    pace_s = (batch_s - demand.sampler_s) / max(demand.workers, 1) + demand.sampler_s
    makers = workers(demand.workers)
    lines.append(
        f"Is loading slow?     a batch takes {duration(batch_s)} to make, with {makers} one every "
        f"{duration(pace_s)}; "
        f"a step takes {duration(step_s)}"
    )
    stages = {
        "on CPU": demand.cpu_s,
        "disk": demand.disk_s,
        "blocked elsewhere": demand.remote_s,
        "waiting for a core": demand.queued_s,
        "collate": demand.collate_s,
        "hand-off": demand.handoff_s,
        "pinning": demand.pin_s,
        "sampler": demand.sampler_s,
    }
    large = sorted(((s, name) for name, s in stages.items() if s > _WORTH_TELLING * batch_s), reverse=True)
    lines.append("Which stage?         " + ", ".join(f"{name} {duration(s)}" for s, name in large))
    return tuple(lines)


def _steps(timelines: Sequence[Timeline]) -> list[str]:
    steps = [step for timeline in timelines for step in timeline.steps]
    if not steps:
        return []
    mean_step_s = sum(step.seconds for step in steps) / len(steps)
    mean_wait_s = sum(step.wait_s for step in steps) / len(steps)
    return [
        f"{len(steps)} measured steps took {duration(mean_step_s)} on average, "
        f"{duration(mean_wait_s)} of it waiting for the next batch"
    ]


def _starts(timelines: Sequence[Timeline]) -> list[str]:
    ranks = max(len(timelines), 1)
    start_s = sum(s.seconds for t in timelines for s in t.spans if s.doing is Doing.START) / ranks
    wall_s = sum(timeline.wall_s for timeline in timelines) / ranks
    if not wall_s or start_s / wall_s < _WORTH_TELLING:
        return []
    return [
        f"starting loaders and waiting for first batches took {duration(start_s)} "
        f"({percent(start_s / wall_s)} of all)"
    ]


def _fetching(demand: Demand) -> str:
    """Whose time it is, and how it divides."""
    who = (
        f"{demand.workers} workers"
        if demand.workers > 1
        else "1 worker"
        if demand.workers
        else "the training process"
    )
    return f"{who} spent {{share}} of the fetching time {{how}}"


def _share(part_s: float, demand: Demand) -> float:
    return part_s / demand.fetch_s if demand.fetch_s else 0.0


def _cpu(demand: Demand) -> str:
    per_sample = demand.cpu_s / demand.samples if demand.samples else demand.cpu_s
    said = _fetching(demand).format(share=percent(_share(demand.cpu_s, demand)), how="on a CPU")
    return f"{said}: {duration(per_sample)} for each sample"


def _remote(demand: Demand) -> str:
    said = _fetching(demand).format(
        share=percent(_share(demand.remote_s, demand)), how="blocked outside the CPU"
    )
    return (
        said
        if demand.storage_bytes is None
        else f"{said} and read {size(demand.storage_bytes)} a batch from storage"
    )


def _disk(demand: Demand) -> str:
    said = _fetching(demand).format(share=percent(_share(demand.disk_s, demand)), how="on storage")
    return (
        said
        if demand.storage_bytes is None
        else f"{said}: {size(demand.storage_bytes)} a batch were not in memory"
    )


def _contention(demand: Demand) -> str:
    return _fetching(demand).format(
        share=percent(_share(demand.queued_s, demand)), how="runnable, but without a core to run on"
    )


def _missed_cores(waits: Mapping[Cause, float]) -> str:
    """Of a whole wait: batches are also collated, sent and received by somebody who needs a core."""
    share = waits.get(Cause.CONTENTION, 0.0) / sum(waits.values())
    return f"for {percent(share)} of the waiting, what had to run next was ready to run and had no core"


def _collate(demand: Demand) -> str:
    return (
        f"collating a batch takes {duration(demand.collate_s)} of CPU, fetching its samples "
        f"{duration(demand.fetch_s)}"
    )


def _handoff(demand: Demand) -> str:
    return (
        f"handing a finished batch over takes {duration(demand.handoff_s)}, "
        f"making it {duration(demand.fetch_s + demand.collate_s)}"
    )


def _sampler(demand: Demand) -> str:
    return (
        f"the sampler takes {duration(demand.sampler_s)} of the training process's time a batch, on average"
    )


def _order(demand: Demand) -> str:
    return (
        f"the slowest batches take {times(demand.tail)} as long as the typical one; "
        "finished batches had to wait for them while workers stood idle"
    )


def _pin(demand: Demand) -> str:
    return f"pinning a batch takes {duration(demand.pin_s)}"


_BY_CAUSE: dict[Cause, Callable[[Demand], str]] = {
    Cause.CPU: _cpu,
    Cause.REMOTE: _remote,
    Cause.DISK: _disk,
    Cause.CONTENTION: _contention,
    Cause.COLLATE: _collate,
    Cause.HANDOFF: _handoff,
    Cause.SAMPLER: _sampler,
    Cause.ORDER: _order,
    Cause.PIN: _pin,
}
