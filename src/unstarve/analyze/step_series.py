"""Run → `Series`: every loader of every rank, step by step, with the causes of each wait."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from unstarve.analyze.batch_production import EpochProduction, recorded_trainings
from unstarve.analyze.blame import blame, total
from unstarve.analyze.timeline import Timeline
from unstarve.model import Batch, Cause, Process, Run, Series, StepPoint

MadeBy = Mapping[tuple[int, int], EpochProduction]
Key = tuple[int, int, int]
Stretch = tuple[int, int]
"""Begin and end, by the process's clock."""


def series_of(run: Run) -> tuple[Series, ...]:
    """The batches that each loader delivered to each rank's training thread, warm-up included."""
    return tuple(
        series
        for training in recorded_trainings(run, warmup_steps=0)
        for series in _of_process(training.timeline, training.productions)
    )


def most_changed(series: Series, before: Stretch, after: Stretch) -> Cause | None:
    """The cause of most of the difference in waiting between two stretches of time.

    None when there is no difference, when it is unexplained, or when a stretch has no batch.
    """
    first, second = (_per_step(series, stretch) for stretch in (before, after))
    if first is None or second is None:
        return None
    difference = {cause: second.get(cause, 0.0) - first.get(cause, 0.0) for cause in Cause}
    sign = 1 if sum(difference.values()) >= 0 else -1
    cause = max(difference, key=lambda c: sign * difference[c])
    return None if cause is Cause.UNKNOWN or sign * difference[cause] <= 0 else cause


def _per_step(series: Series, stretch: Stretch) -> dict[Cause, float] | None:
    points = [point for point in series.points if stretch[0] <= point.got_ns <= stretch[1]]
    if not points:
        return None
    number = sum(point.number for point in points)
    return {cause: seconds / number for cause, seconds in total(map(_causes, points)).items()}


def _of_process(timeline: Timeline, made: MadeBy) -> Iterator[Series]:
    process = timeline.process
    names = _names(process)
    # A span may have been split where loaders overlap: each batch once, in the order of requests.
    batches = dict.fromkeys(span.batch for span in timeline.spans if span.batch is not None)
    by_loader: defaultdict[int, list[Batch]] = defaultdict(list)
    for batch in batches:
        by_loader[batch.loader].append(batch)
    stalls = _stalls(process)
    for loader, own in sorted(by_loader.items()):
        points = tuple(_points(own, made, stalls, on_cpu=process.device == "cpu"))
        steps = [point for point in points if point.step_s is not None]
        stall_s = [point.stall_s * point.number for point in steps if point.stall_s is not None]
        yield Series(
            rank=process.rank,
            pid=process.pid,
            loader=names.get(loader, "loader"),
            main=loader == timeline.main,
            clock_offset_ns=process.clock_offset_ns,
            points=points,
            waits=total(map(_causes, points)),
            step_s=sum((point.step_s or 0.0) * point.number for point in steps),
            stall_s=sum(stall_s) if len(stall_s) == len(steps) else None,
        )


def _points(
    batches: Sequence[Batch], made: MadeBy, stalls: Mapping[Key, float], *, on_cpu: bool
) -> Iterator[StepPoint]:
    before_ns = {_key(b): a.last_ns for a, b in pairwise(batches) if a.epoch == b.epoch}
    for batch in batches:
        begin_ns, number = before_ns.get(_key(batch)), batch.weight
        step_s = None if begin_ns is None else (batch.got_ns - begin_ns) / 1e9
        if batch.thinned is not None:
            step_s = batch.thinned.step_ns / batch.thinned.steps / 1e9 if batch.thinned.steps else None
        wait_s = batch.wait_ns / 1e9 / number
        stall_s = stalls.get(_key(batch))
        causes = blame(batch, made.get((batch.loader, batch.epoch)))
        yield StepPoint(
            got_ns=batch.last_ns,
            wait_s=wait_s,
            step_s=step_s,
            stall_s=wait_s if on_cpu else None if stall_s is None else stall_s / number,
            size=batch.size if batch.size is None or number == 1 else batch.size / number,
            ready=batch.ready,
            causes={cause: seconds / number for cause, seconds in causes.items()},
            number=number,
        )


def _causes(point: StepPoint) -> dict[Cause, float]:
    return {cause: seconds * point.number for cause, seconds in point.causes.items()}


def _stalls(process: Process) -> dict[Key, float]:
    """Seconds per batch, averaged over devices."""
    found: defaultdict[Key, list[float]] = defaultdict(list)
    for stall in process.stalls:
        found[stall.loader, stall.epoch, stall.position].append(stall.stall_ns / 1e9)
    return {key: fmean(seconds) for key, seconds in found.items()}


def _names(process: Process) -> dict[int, str]:
    """Unique names: charts and time series tell loaders apart by nothing else."""
    names: dict[int, str] = {}
    counts: Counter[str] = Counter()
    for loader in process.loaders:
        counts[loader.name] += 1
        names[loader.id] = (
            loader.name if counts[loader.name] == 1 else f"{loader.name} #{counts[loader.name]}"
        )
    return names


def _key(batch: Batch) -> Key:
    return batch.loader, batch.epoch, batch.position
