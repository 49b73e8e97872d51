"""The predicted gain of a change: the forecast that `unstarve whatif` gives, limited by a measured headroom.

A rule describes its change as a `Scenario`, and the run's forecaster simulates it. The forecaster knows that
nothing is faster than training without waiting; where `unstarve ideal` measured that, its interval counts. A
gain below 1 is a loss, and is not cut off. What lies outside the loader (a copy to the device) is not
simulated: there a rule says which share of the waiting, or of the copies on the critical path, goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unstarve.advise.proposal import Outcome
from unstarve.model import Cause, Demand, Diagnosis, Gain, Scenario

UNCHANGED = Scenario()
_MOST_COPIED = 0.99
"""Keeps the gain finite."""
_ENOUGH = 0.95
"""Share of the speed with the best number of workers that counts as equally good."""


def predict(
    d: Diagnosis, likely: Outcome, *, worst: Outcome | None = None, best: Outcome | None = None
) -> Gain | None:
    """Speed after a change divided by speed before it; None when it cannot be predicted.

    `worst` and `best` widen the interval where the effect of the change itself is uncertain: it then reaches
    from the worst case to the upper end of the forecast for the best.
    """
    room = d.headroom
    expected = _expected(d, likely)
    if room is None or expected is None:
        return None
    predicted, low, high = expected
    if worst is not None:
        low = min(low, _speedup(d, worst))
    if best is not None:
        high = max(high, *(_expected(d, best) or (high,)))
    if room.method == "replay" and not _is_of_copies(likely):
        predicted, high = min(predicted, max(room.speedup, 1.0)), min(high, max(room.high, 1.0))
    return Gain(predicted, min(low, predicted), max(high, predicted))


def likely_speedup(d: Diagnosis, outcome: Outcome | None) -> float | None:
    """The predicted gain alone, which is much cheaper; None when it cannot be predicted."""
    return None if outcome is None or d.headroom is None or d.forecaster is None else _speedup(d, outcome)


def both(a: Outcome | None, b: Outcome | None) -> Scenario | None:
    """Two changes at once; None when they contradict each other or cannot be simulated together.

    Where both make the same stage cheaper, they save the same time: the larger saving counts, not both.
    """
    if not isinstance(a, Scenario) or not isinstance(b, Scenario):
        return None
    settled: dict[str, Any] = {}
    for name in ("workers", "prefetch", "in_order", "persistent", "batch_size", "cores"):
        values = {value for one in (a, b) if (value := getattr(one, name)) is not None}
        if len(values) > 1:
            return None
        settled[name] = values.pop() if values else None
    return Scenario(
        **settled,
        left={s: min(a.left.get(s, 1.0), b.left.get(s, 1.0)) for s in (*a.left, *b.left)},
        evened=max(a.evened, b.evened),
        foreign=min(a.foreign, b.foreign),
    )


def cheaper(stage: str, left: float) -> Scenario:
    """One stage of making batches takes only this share of its time; stages as in `Scenario`."""
    return Scenario(left={stage: left})


def enough_workers(d: Diagnosis) -> int | None:
    """The smallest number of workers that is about as good as the best."""
    if d.whatif is None:
        return None
    some = [one for one in d.whatif.curve if one.setting.workers]
    best = max((one.speedup for one in some), default=0.0)
    return min((one.setting.workers for one in some if one.speedup >= _ENOUGH * best), default=None)


def step_s(d: Diagnosis) -> float | None:
    """Measured seconds per step, epoch starts included."""
    return 1 / d.throughput.steps_per_s if d.throughput.steps_per_s else None


def free_step_s(d: Diagnosis) -> float | None:
    """Seconds per step if loading were free."""
    step = step_s(d)
    return None if step is None or d.headroom is None else step / max(d.headroom.speedup, 1.0)


def making_s(demand: Demand) -> float:
    """Seconds a worker takes for one batch when it never waits for a core."""
    return demand.fetch_s - demand.queued_s + demand.collate_s + demand.handoff_s / 2


def computing_s(demand: Demand) -> float:
    """The CPU part of `making_s`."""
    return demand.cpu_s + demand.collate_s + demand.handoff_s / 2


def _expected(d: Diagnosis, outcome: Outcome) -> tuple[float, float, float] | None:
    """The likely speed-up and its interval."""
    if isinstance(outcome, Scenario):
        if d.forecaster is None:
            return None
        forecast = d.forecaster(outcome)
        return forecast.speedup, forecast.speedup_low, forecast.speedup_high
    speedup = _without_waits(d, outcome)
    return speedup, speedup, speedup


def _speedup(d: Diagnosis, outcome: Outcome) -> float:
    if not isinstance(outcome, Scenario):
        return _without_waits(d, outcome)
    return 1.0 if d.forecaster is None or outcome == UNCHANGED else d.forecaster.speedup(outcome)


def _without_waits(d: Diagnosis, gone: Mapping[Cause, float]) -> float:
    """Speed-up when these shares of the waiting, or of the copies on the critical path, are gone."""
    step, free, waited_s = step_s(d), free_step_s(d), sum(d.waits.values())
    if step is None or free is None:
        return 1.0
    share = sum(d.waits.get(cause, 0.0) * part for cause, part in gone.items()) / (waited_s or 1.0)
    copied = 0.0 if d.copies is None else d.copies.share * gone.get(Cause.COPY, 0.0)
    return step / (step - (step - free) * min(share, 1.0) - step * min(copied, _MOST_COPIED))


def _is_of_copies(outcome: Outcome) -> bool:
    """Whether it lies outside of what a replay measures: replayed batches are copied like all others."""
    return not isinstance(outcome, Scenario) and Cause.COPY in outcome
