"""How a run is cut into epochs, and what beginning and ending one costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, median

from unstarve.analyze.making import Production
from unstarve.analyze.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Epochs:
    """A typical epoch after the first."""

    batches: int
    starts: float
    """Of epochs, per measured batch: neither warm-up nor run need end with one."""
    iter_s: float
    """``iter(loader)``."""
    boot_s: float
    """On a core, from a worker's creation to its first batch."""
    end_s: float
    """Asking for a batch when there is none left."""
    between_s: float
    """Outside of all epochs, per epoch: validation, say."""


def epochs_of(timeline: Timeline, made: Mapping[int, Production], slowdown: float) -> Epochs | None:
    """None when no epoch began in the measured part. `made` goes by epoch."""
    measured = timeline.measured_batches
    firsts = sum(batch.position == 0 for batch in measured)
    if not firsts or measured[0].block:
        return None
    main = [epoch for epoch in timeline.process.epochs if epoch.loader == timeline.main]
    later = [epoch for epoch in main if epoch.begin_ns > measured[0].ask_ns] or main
    counts = Counter(batch.epoch for batch in timeline.batches)
    whole = [counts[epoch.epoch] for epoch in main if epoch.end_ns is not None and counts[epoch.epoch]]
    boots = [
        works[0].work.begin_ns - epoch.begin_ns
        for epoch in later
        if (production := made.get(epoch.epoch)) is not None and production.workers
        for works in production.by_worker
        if works
    ]
    ends = [e.end_ns - e.last_ask_ns for e in main if e.end_ns is not None and e.last_ask_ns is not None]
    iter_s = median(epoch.ready_ns - epoch.begin_ns for epoch in later) / 1e9
    inside_s = sum(_measured_s(timeline, epoch.begin_ns, epoch.end_ns) for epoch in main)
    return Epochs(
        batches=round(fmean(whole)) if whole else max(counts.values()),
        starts=firsts / len(measured),
        iter_s=iter_s,
        # Workers are made one after the other while iter() runs: half of it, on average, is not theirs.
        boot_s=max(median(boots) / 1e9 - iter_s / 2, 0.0) / slowdown if boots else 0.0,
        end_s=median(ends) / 1e9 if ends else 0.0,
        between_s=max(timeline.measured_s - inside_s, 0.0) / firsts,
    )


def _measured_s(timeline: Timeline, begin_ns: int, end_ns: int | None) -> float:
    """Seconds of the measured part that lie between two moments."""
    first_ns, last_ns = timeline.measured[0].begin_ns, timeline.measured[-1].end_ns
    return max(min(end_ns or last_ns, last_ns) - max(begin_ns, first_ns), 0) / 1e9
