"""Measured batches of the main loader whose making, delivery and step were all recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from unstarve.analyze.making import Made, Production
from unstarve.analyze.timeline import Timeline
from unstarve.model import Batch

_MOST_BATCHES = 160
_STRETCH = 16
"""Batches that are taken together from a long run: what is slow is often so for a while."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One batch, how it was made, and the one after it: the step lies between."""

    batch: Batch
    made: Made
    after: Batch
    worker_busy: bool
    """Its worker was busy with another batch while the training process took it."""


def seen_batches(timeline: Timeline, made: Mapping[int, Production]) -> Sequence[Seen]:
    """All of a short run; of a long one, stretches from its whole length. `made` goes by epoch."""
    next_work = {
        (epoch, one.work.task): after.work
        for epoch, production in made.items()
        for works in production.by_worker
        for one, after in pairwise(works)
    }
    found = []
    for batch, after in pairwise(timeline.measured_batches):
        production = made.get(batch.epoch)
        apart = (after.epoch, after.position) != (batch.epoch, batch.position + 1)
        if production is None or batch.task is None or apart:
            continue
        one, later = production.by_task.get(batch.task), next_work.get((batch.epoch, batch.task))
        if one is None or (production.workers and one.received is None):
            continue
        busy = (
            later is not None
            and one.received is not None
            and later.begin_ns < one.received.ready_ns
            and later.done_ns > one.received.arrived_ns
        )
        found.append(Seen(batch, one, after, busy))
    return _spread_out(found)


def slowdown_of(seen: Sequence[Seen]) -> float:
    """How much longer than alone CPU work took, workers' and steps' together."""
    cpu = sum(s.made.work.cpu_ns + s.made.work.collate_cpu_ns + s.after.step_cpu_ns for s in seen)
    queued = sum(
        (s.made.work.queued_ns or 0) + (s.made.work.collate_queued_ns or 0) + (s.after.step_queued_ns or 0)
        for s in seen
    )
    return 1 + queued / cpu if cpu else 1.0


def _spread_out(seen: Sequence[Seen]) -> Sequence[Seen]:
    if len(seen) <= _MOST_BATCHES:
        return seen
    last, count = len(seen) - _STRETCH, _MOST_BATCHES // _STRETCH
    firsts = [round(number * last / (count - 1)) for number in range(count)]
    return [one for first in firsts for one in seen[first : first + _STRETCH]]
