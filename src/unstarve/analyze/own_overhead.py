"""What recording has cost the training, in CPU time: measured steps and fetches stand for all of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from unstarve.analyze.stats import number_of
from unstarve.analyze.timeline import Timeline
from unstarve.model import Overhead, Process


def overhead_of(timelines: Sequence[Timeline], processes: Sequence[Process]) -> Overhead:
    """The overhead in the training processes and, apart from it, in their workers."""
    trained = [_training_s(timeline.process) for timeline in timelines]
    steps, wall_s = sum(number_of(t.batches) for t in timelines), sum(t.wall_s for t in timelines)
    us_per_step = share = None
    if None not in trained and steps and wall_s:
        own_s = sum(seconds or 0.0 for seconds in trained)
        us_per_step, share = own_s / steps * 1e6, own_s / wall_s
    return Overhead(us_per_step, share, *_in_workers(processes))


def _training_s(process: Process) -> float | None:
    """CPU seconds in one training process; None when no step was measured."""
    own, batches, works = process.own, number_of(process.batches), sum(w.weight for w in process.works)
    if own is None:  # an older run: only the clock was read, and a typical step kept its core
        return statistics.median(batch.own_ns / batch.weight for batch in process.batches) / 1e9 * batches
    if not own.steps or (works and not own.fetches):
        return None
    making_s = own.fetch_cpu_s / own.fetches * works if works else 0.0
    return own.step_cpu_s / own.steps * batches + making_s + own.rest_cpu_s


def _in_workers(processes: Sequence[Process]) -> tuple[float | None, float | None]:
    """Microseconds per batch, and the share of the workers' time; None without measured workers."""
    own_s = span_s = 0.0
    batches = 0
    for process in processes:
        own, works = process.own, process.works
        if process.worker and works and own is not None and own.fetches:
            made = sum(work.weight for work in works)
            own_s += own.fetch_cpu_s / own.fetches * made + own.rest_cpu_s
            span_s += (works[-1].done_ns - works[0].received_ns) / 1e9
            batches += made
    return (own_s / batches * 1e6, own_s / span_s) if batches and span_s else (None, None)
