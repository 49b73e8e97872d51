"""What making a batch costs: the mean batch and the slowest samples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unstarve.analyze.batch_production import EpochProduction, MadeBatch
from unstarve.analyze.blame import split_collate, split_fetch
from unstarve.analyze.stats import number_of
from unstarve.analyze.timeline import Timeline
from unstarve.model import Batch, Cause, Demand, SlowSample, Work

_MOST_SLOW_SAMPLES = 10
_SLOW = 3.0
"""A sample is slow when it takes this many times as long as the slowest sample of a typical batch."""


def demand_of(timeline: Timeline, made: Mapping[tuple[int, int], EpochProduction]) -> Demand | None:
    """Means over the main loader's measured batches; None when how they were made was not recorded.

    Of a loader of DALI, which makes batches before they are asked for, only the end of that is recorded.
    """
    main = next((one for one in timeline.process.loaders if one.id == timeline.main), None)
    if main is not None and "prefetch_queue_depth" in main.config:
        return None
    batches = [b for b in timeline.measured_batches if b.task is not None]
    pairs = [(b, m) for b in batches if (m := _made_for(b.epoch, b.task, timeline, made)) is not None]
    if not pairs:
        return None
    workers = max(production.workers for key, production in made.items() if key[0] == timeline.main)
    works = [m.work for _, m in pairs]
    parts: defaultdict[Cause, float] = defaultdict(float)
    for work in works:
        for cause, seconds in split_fetch(work).items():
            parts[cause] += seconds
    collates = [split_collate(work, in_worker=workers > 0) for work in works]
    count = len(works)
    first_epoch = pairs[0][0].epoch
    begins = [e for e in timeline.process.epochs if e.loader == timeline.main and e.epoch > first_epoch]
    sampler_ns = sum(b.sampler_ns for b, _ in pairs) / count
    sampler_ns += sum(e.sampler_ns for e in begins) / number_of(timeline.measured_batches)
    storage = [work.storage_bytes for work in works]
    return Demand(
        loader="loader" if main is None else main.name,
        workers=workers,
        batches=count,
        samples=_samples(pairs),
        fetch_s=sum(work.collate_ns - work.begin_ns for work in works) / count / 1e9,
        cpu_s=parts[Cause.CPU] / count,
        disk_s=parts[Cause.DISK] / count,
        remote_s=parts[Cause.REMOTE] / count,
        queued_s=parts[Cause.CONTENTION] / count,
        collate_s=sum(c[Cause.COLLATE] for c in collates) / count,
        handoff_s=sum(c[Cause.HANDOFF] for c in collates) / count
        + sum(_handoff_s(m) for _, m in pairs) / count,
        pin_s=sum(_pin_s(m) for _, m in pairs) / count,
        sampler_s=sampler_ns / 1e9,
        storage_bytes=None if None in storage else sum(s or 0 for s in storage) / count,
        opens=sum(work.opens for work in works) / count,
        busy_share=_busy_share(timeline.main, made) if workers else None,
        tail=_tail(works),
        helped_s=sum(work.helped_ns for work in works) / count / 1e9,
    )


def _samples(pairs: Sequence[tuple[Batch, MadeBatch]]) -> float | None:
    """Samples per batch, as delivered: a dataset may return ready-made batches, one for each index.

    Where the delivered ones cannot be counted, a list of indices tells how many were fetched.
    """
    known = [b.size if b.size is not None else m.work.samples for b, m in pairs]
    uncounted = any(b.size is None and m.work.samples <= 1 for b, m in pairs)
    return None if uncounted else sum(known) / len(known)


def _made_for(
    epoch: int, task: int | None, timeline: Timeline, made: Mapping[tuple[int, int], EpochProduction]
) -> MadeBatch | None:
    production = made.get((timeline.main, epoch))
    return None if production is None or task is None else production.by_task.get(task)


def _handoff_s(made: MadeBatch) -> float:
    """Pickling in the worker and unpacking in the training process."""
    sent = 0 if made.sent is None else made.sent.end_ns - made.sent.begin_ns
    received = 0 if made.received is None else made.received.ready_ns - made.received.arrived_ns
    return (sent + received) / 1e9


def _pin_s(made: MadeBatch) -> float:
    return 0.0 if made.received is None else (made.received.pinned_ns - made.received.ready_ns) / 1e9


def _busy_share(loader: int, made: Mapping[tuple[int, int], EpochProduction]) -> float | None:
    busy_ns = span_ns = 0
    for key, production in made.items():
        if key[0] != loader:
            continue
        for worked in production.worked:
            if worked.number > 1:
                busy_ns += worked.busy_ns
                span_ns += worked.span_ns
    return busy_ns / span_ns if span_ns else None


def _tail(works: Sequence[Work]) -> float:
    durations = np.array([work.done_ns - work.begin_ns for work in works], dtype=float)
    typical, slow = np.percentile(durations, [50, 99])
    return float(slow / typical) if typical else 1.0


def slow_samples(made: Mapping[Any, EpochProduction]) -> tuple[SlowSample, ...]:
    """The samples that stand out, slowest first."""
    slowest: dict[int, float] = {}
    files: dict[int, str] = {}
    times = []
    for production in made.values():
        for one in production.by_task.values():
            if one.work.slow_index is not None:
                times.append(one.work.slow_ns)
                index = one.work.slow_index
                slowest[index] = max(slowest.get(index, 0.0), one.work.slow_ns / 1e6)
                if one.work.slow_file is not None:
                    files[index] = one.work.slow_file
    if not times:
        return ()
    limit_ms = _SLOW * float(np.median(times)) / 1e6
    found = sorted(((ms, index) for index, ms in slowest.items() if ms > limit_ms), reverse=True)
    return tuple(SlowSample(index, ms, files.get(index)) for ms, index in found[:_MOST_SLOW_SAMPLES])
