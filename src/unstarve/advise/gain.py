"""How much faster a change would make training: a plain model of the loader, bounded by the headroom.

With workers, a batch comes every ``making / workers`` seconds, but not faster than the cores can do its CPU
work; the training process adds its own part of the hand-off to the step. Without workers, making a batch
adds to the step. No step is faster than the step without its wait. So::

    no workers   step = free + sampler + making
    workers      step = max(free + sampler + half of the hand-off, making / workers, cpu / cores)

Waiting for a core is the crowd of the loader's own workers where they are more than the cores, and ends with
it; else others cause it, and it stays: cores are then worth less by the same factor.

What the model leaves unexplained of the measured step is kept as it is. Queueing, jitter and limits of disks
and networks are not in it: the interval says so, and no promise goes past the headroom. `predict` is the
only way in, so that a simulation can take its place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from unstarve.advise.facts import batch_bytes, usable_cores
from unstarve.model import Cause, Demand, Diagnosis, Gain

Outcome = Demand | Mapping[Cause, float]
"""How a batch would be made, or which share of each cause's waiting would go away."""

MOST_WORKERS = 32
_SPARE = 1.2
"""Workers are counted for batches that take this much longer than the mean: some do."""
_UNSURE = 0.4
"""Part of a predicted gain that the model may be wrong by, where a rule knows no better."""
_SEND_S = 0.5e-3
_SEND_BYTES_PER_S = 1.5e9
"""What handing a batch over costs a loader that had no workers yet: a message, and its bytes copied."""


def predict(
    d: Diagnosis, likely: Outcome, *, worst: Outcome | None = None, best: Outcome | None = None
) -> Gain | None:
    """Speed after a change divided by that before it; None when the headroom is not known."""
    room = d.headroom
    if room is None or step_s(d) is None:
        return None
    most = max(room.high, room.speedup, 1.0)
    predicted = _within(1.0, _speedup(d, likely), max(room.speedup, 1.0))
    if worst is not None:
        low = _speedup(d, worst)
    else:  # the step itself may need a core, too
        low = min(1 + (predicted - 1) * (1 - _UNSURE), _speedup(d, likely, taken_cores=1.0))
    high = _speedup(d, best) if best is not None else 1 + (predicted - 1) * (1 + _UNSURE)
    low *= min(room.low / room.speedup, 1.0)
    high *= max(room.high / room.speedup, 1.0)
    return Gain(predicted, _within(1.0, low, predicted), _within(predicted, high, most))


def step_s(d: Diagnosis) -> float | None:
    """Measured seconds per step, starts of epochs included."""
    return 1 / d.throughput.steps_per_s if d.throughput.steps_per_s else None


def free_step_s(d: Diagnosis) -> float | None:
    """Seconds per step if data were free."""
    step = step_s(d)
    return None if step is None or d.headroom is None else step / max(d.headroom.speedup, 1.0)


def making_s(demand: Demand) -> float:
    """Seconds of a worker's time for one batch when it never waits for a core."""
    return demand.fetch_s - demand.queued_s + demand.collate_s + demand.handoff_s / 2


def foreign_factor(d: Diagnosis) -> float:
    """How much longer CPU work takes because others use the cores; 1 where the crowd is our own."""
    demand, cores = d.demand, usable_cores(d)
    if demand is None or cores is None or demand.workers > cores or not demand.cpu_s:
        return 1.0
    return (demand.cpu_s + demand.queued_s) / demand.cpu_s


def computing_s(demand: Demand) -> float:
    """The part of it on a CPU."""
    return demand.cpu_s + demand.collate_s + demand.handoff_s / 2


def enough_workers(d: Diagnosis) -> int | None:
    """Workers that keep up with training, or as many as help: only waiting scales past the cores."""
    free = free_step_s(d)
    if d.demand is None or not free:
        return None
    making, computing, cores = making_s(d.demand), computing_s(d.demand), usable_cores(d)
    count = min(math.ceil(_SPARE * making / free), MOST_WORKERS)
    if cores is not None and computing > 0:
        count = min(count, math.floor(cores * making / computing + 1e-6))
    return max(count, 1)


def with_workers(d: Diagnosis, count: int) -> Demand | None:
    """How batches would be made by so many workers."""
    if d.demand is None or d.demand.workers or not count:
        return None if d.demand is None else replace(d.demand, workers=count)
    handoff_s = _SEND_S + (batch_bytes(d) or 0.0) / _SEND_BYTES_PER_S
    return replace(d.demand, workers=count, handoff_s=handoff_s)


def without_workers(demand: Demand) -> Demand:
    """How batches would be made by the training process itself."""
    return replace(demand, workers=0, handoff_s=0.0)


def cheaper(demand: Demand, stage: str, left: float) -> Demand:
    """How batches would be made if a stage, as `Demand` names it, took only this share of its time."""
    before = getattr(demand, stage)
    changed = replace(demand, **{stage: before * left})
    if stage in ("cpu_s", "disk_s", "remote_s", "queued_s"):
        changed = replace(changed, fetch_s=max(demand.fetch_s - before * (1 - left), 0.0))
    return changed


def _speedup(d: Diagnosis, outcome: Outcome, taken_cores: float = 0.0) -> float:
    step, free = step_s(d), free_step_s(d)
    if step is None or free is None:
        return 1.0
    if not isinstance(outcome, Demand):
        waited_s = sum(d.waits.values())
        gone = sum(d.waits.get(cause, 0.0) * share for cause, share in outcome.items())
        return step / (step - (step - free) * min(gone / waited_s, 1.0)) if waited_s else 1.0
    if d.demand is None:
        return 1.0
    cores, factor = usable_cores(d), foreign_factor(d)
    before = _modelled(d.demand, free, cores, factor)
    fewer = None if cores is None else max(cores - taken_cores, cores / 2)
    after = _modelled(outcome, free, fewer, factor)
    # A model that expects slower steps than were measured is wrong by a factor, one that expects faster ones
    # misses a part: neither may be counted as gain.
    left = step * after / before if before > step else step - (before - after)
    # Starting workers takes its time however fast they are then.
    waited_s = sum(d.waits.values())
    starts = d.waits.get(Cause.STARTUP, 0.0) / waited_s if waited_s else 0.0
    return step / max(left, free + (step - free) * starts)


def _modelled(demand: Demand, free: float, cores: float | None, factor: float) -> float:
    """Seconds per step; `factor` is how much longer CPU work takes because of others."""
    making, computing = making_s(demand), computing_s(demand)
    making += computing * (factor - 1)
    if demand.workers == 0:
        return free + demand.sampler_s + making
    pace_s = making / demand.workers
    if cores is not None:
        pace_s = max(pace_s, computing * factor / cores)
    return max(free + demand.sampler_s + demand.handoff_s / 2, pace_s)


def _within(least: float, value: float, most: float) -> float:
    return min(max(value, least), most)
