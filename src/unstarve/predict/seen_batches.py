"""Measured batches of the main loader whose making, delivery and step were all recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from unstarve.analyze.making import Made, Production
from unstarve.analyze.timeline import Timeline
from unstarve.model import Batch, Work

_MOST_BATCHES = 160
_STRETCH = 16
"""Batches that are taken together from a long run: what is slow is often so for a while."""
_SHORT_BURST_NS = 500_000
"""Work that is shorter than this is done before its turn is over."""


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


def step_late_ns(batch: Batch) -> float:
    """Of the step before this batch: how late it went on because others had the cores at that moment."""
    return _late_ns(batch.step_queued_ns, batch.step_cpu_ns, 1)


def work_late_ns(work: Work) -> float:
    """The same of making a batch."""
    collate_ns = _late_ns(work.collate_queued_ns, work.collate_cpu_ns, 1)
    return _late_ns(work.queued_ns, work.cpu_ns, work.switches + 1) + collate_ns


def slowdown_of(seen: Sequence[Seen], late_share: float) -> float:
    """How much longer than alone CPU work took because others had their turns, workers' and steps'.

    `late_share` is the part of lateness that counts as such, and not as slowness.
    """
    cpu_ns = queued_ns = 0.0
    for one in seen:
        work, after = one.made.work, one.after
        cpu_ns += work.cpu_ns + work.collate_cpu_ns + after.step_cpu_ns
        queued_ns += (work.queued_ns or 0) + (work.collate_queued_ns or 0) + (after.step_queued_ns or 0)
        queued_ns -= late_share * (work_late_ns(work) + step_late_ns(after))
    return 1 + queued_ns / cpu_ns if cpu_ns else 1.0


def _late_ns(queued_ns: int | None, cpu_ns: int, bursts: int) -> float:
    """Of the time in line for a core: being woken late, once for every burst of work, however short.

    The rest comes with long bursts: others get their turns in between, the more the longer one computes.
    """
    burst_ns = cpu_ns / max(bursts, 1)
    return (queued_ns or 0) / (1 + burst_ns / _SHORT_BURST_NS)


def _spread_out(seen: Sequence[Seen]) -> Sequence[Seen]:
    if len(seen) <= _MOST_BATCHES:
        return seen
    last, count = len(seen) - _STRETCH, _MOST_BATCHES // _STRETCH
    firsts = [round(number * last / (count - 1)) for number in range(count)]
    return [one for first in firsts for one in seen[first : first + _STRETCH]]
