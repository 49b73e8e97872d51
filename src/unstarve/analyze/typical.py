"""A few steps that are like most others: shown as one lane per worker."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from statistics import median

from unstarve.analyze.batch_production import Production
from unstarve.analyze.timeline import Timeline
from unstarve.analyze.views import lanes_of
from unstarve.model import Batch, Lane

_STEPS = 6
"""Enough to see a rhythm, few enough to see each."""


def typical_lanes(timeline: Timeline, made: Mapping[tuple[int, int], Production]) -> tuple[Lane, ...]:
    """Lanes of the stretch of steps whose length is nearest to the median one; empty for a short run."""
    stretch = _stretch(timeline.measured_batches)
    if stretch is None:
        return ()
    begin_ns, end_ns = stretch
    spans = tuple(
        span.within(begin_ns, end_ns)
        for span in timeline.spans
        if span.end_ns > begin_ns and span.begin_ns < end_ns
    )
    around = {
        key: dataclasses.replace(
            production,
            by_worker=tuple(
                tuple(m for m in works if m.work.done_ns > begin_ns and m.work.begin_ns < end_ns)
                for works in production.by_worker
            ),
        )
        for key, production in made.items()
    }
    process = timeline.process
    inside = dataclasses.replace(
        process,
        receipts=tuple(r for r in process.receipts if r.pinned_ns > begin_ns and r.arrived_ns < end_ns),
        stalls=tuple(s for s in process.stalls if s.got_ns > begin_ns and s.ask_ns < end_ns),
    )
    shown = dataclasses.replace(timeline, process=inside, spans=spans)
    seen = {key: production for key, production in around.items() if any(production.by_worker)}
    return lanes_of(shown, seen, {}, begin_ns)


def _stretch(batches: tuple[Batch, ...]) -> tuple[int, int] | None:
    windows = [
        (first.ask_ns, last.ask_ns)
        for first, last in zip(batches, batches[_STEPS:], strict=False)
        if first.epoch == last.epoch
    ]
    if not windows:
        return None
    usual_ns = median(end - begin for begin, end in windows)
    return min(windows, key=lambda window: abs(window[1] - window[0] - usual_ns))
