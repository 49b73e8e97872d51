"""Recorded demands → predicted throughput under settings that nobody has run, with an interval.

`foresee` makes a `Predictor` of a run. It plays the recorded batches through a model of the loader, once as
the loader was set up and once as it would be: what both have in common, errors of the model included, cancels
out of their ratio. The same is done for several draws of what nobody knows, and where most of them end up is
the interval.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from unstarve.analyze.making import Production, productions, workers_of
from unstarve.analyze.timeline import WARMUP_STEPS, Timeline, build_timeline, training_processes
from unstarve.errors import NotPredictableError, UsageError
from unstarve.model import Forecast, Run, Scenario, Setting, WhatIf
from unstarve.predict.demand import Demands, demands_of
from unstarve.predict.draws import Draw, draws_of
from unstarve.predict.notes import notes_of
from unstarve.predict.play_scenario import Outcome, Setup, outcome_of, resolve, with_crowd

WORKERS = (0, 1, 2, 4, 8, 16)
"""What is asked when nobody says what to ask …"""
REPORTED_WORKERS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""… and for a report, whose advice is to name a number."""
_MOST_SETTINGS = 60
_ENOUGH = 0.97
"""Of the best throughput: what is as good as that."""
_LEAST_DOUBT = 0.08
"""No prediction is surer than this …"""
_DOUBT_PER_DOUBLING = 0.03
"""… and the less sure the more workers there are to be, or the fewer …"""
_DOUBT_OF_CROSSING = 0.06
"""… and whether there are any at all, since then somebody else does the work, in another way."""
_INNER = (10, 90)
"""Percentiles of the draws that the interval lies between."""


def foresee(run: Run, warmup_steps: int = WARMUP_STEPS) -> Predictor:
    """What predicts this run's main loader; raises `NotPredictableError` when it cannot be modelled."""
    timelines = [t for p in training_processes(run) if (t := build_timeline(p, warmup_steps)) is not None]
    workers = workers_of(run.processes)
    found = foresight_of(run, timelines, [productions(t.process, workers) for t in timelines])
    if isinstance(found, Predictor):
        return found
    raise NotPredictableError(f"{run.path} cannot be modelled: {found}")


def foresight_of(
    run: Run, timelines: Sequence[Timeline], made: Sequence[Mapping[tuple[int, int], Production]]
) -> Predictor | str:
    """The same where timelines are at hand; a sentence says why not."""
    why = "no batch was delivered to a training loop"
    for timeline, production in zip(timelines, made, strict=True):
        found = demands_of(run, timeline, production)
        if isinstance(found, Demands):
            return predictor_of(found)
        why = found
    return why


def predictor_of(demands: Demands) -> Predictor:
    """A predictor of a loader with these demands."""
    draws = draws_of(demands)
    demands = with_crowd(demands, draws[0])
    now = resolve(demands, Scenario())
    return Predictor(demands, draws, tuple(outcome_of(demands, now, draw.as_recorded()) for draw in draws))


@dataclass(frozen=True, slots=True)
class Predictor:
    """Answers what-if questions about one run."""

    demands: Demands
    draws: tuple[Draw, ...]
    """The first is the likely one: the recorded batches as they came."""
    recorded: tuple[Outcome, ...]
    """What the model makes of the recorded setting, per draw."""

    def __call__(self, scenario: Scenario) -> Forecast:
        """How training would go, and how sure that is."""
        setup, now = resolve(self.demands, scenario), resolve(self.demands, Scenario())
        if setup == now:
            likely = self.recorded[0].period_s
            speedups = [likely / draw.period_s for draw in self.recorded]
            return _forecast(self.demands, setup, _interval(speedups, _LEAST_DOUBT), self.demands.wait_share)
        new = [outcome_of(self.demands, setup, draw) for draw in self.draws]
        speedups = [a.period_s / b.period_s for a, b in zip(self.recorded, new, strict=True)]
        return _forecast(self.demands, setup, _interval(speedups, self._doubt(now, setup)), new[0].wait_share)

    def speedup(self, scenario: Scenario) -> float:
        """The likely one alone, in steps: a fraction of the work."""
        setup = resolve(self.demands, scenario)
        return self.recorded[0].period_s / outcome_of(self.demands, setup, self.draws[0]).period_s

    def _doubt(self, now: Setup, setup: Setup) -> float:
        """How far from the recorded setting another one is, as a logarithm of the speed-up."""
        doublings = abs(math.log2((setup.workers + 1) / (now.workers + 1)))
        crossing = _DOUBT_OF_CROSSING if (setup.workers > 0) != (now.workers > 0) else 0.0
        return max(self.misfit, _LEAST_DOUBT) + _DOUBT_PER_DOUBLING * doublings + crossing

    @property
    def misfit(self) -> float:
        """By how much the model misses the recorded run itself, as a logarithm."""
        return abs(math.log(self.demands.period_s / self.recorded[0].period_s))


def what_if(
    predictor: Predictor,
    workers: Sequence[int] = WORKERS,
    prefetch: Sequence[int] = (),
    batch_sizes: Sequence[int] = (),
) -> WhatIf:
    """All combinations of the given settings, with the recorded one among them."""
    now = resolve(predictor.demands, Scenario())
    if batch_sizes and now.batch_size is None:
        raise UsageError("this loader has no batch_size that could be changed")
    counts = sorted({*workers, now.workers})
    asked = [
        Scenario(workers=count, prefetch=depth if count else None, batch_size=size)
        for size, count, depth in product(
            batch_sizes or (now.batch_size,), counts, prefetch or (now.prefetch,)
        )
    ]
    if len(asked) > _MOST_SETTINGS:
        raise UsageError(f"{len(asked)} settings are more than {_MOST_SETTINGS}: ask for fewer at a time")
    found: dict[Setting, Forecast] = {}
    for scenario in (*asked, Scenario()):
        forecast = predictor(scenario)
        found[forecast.setting] = forecast
    recorded = predictor(Scenario()).setting
    curve = [dataclasses.replace(one, recorded=one.setting == recorded) for one in found.values()]
    return WhatIf(
        predictor.demands.loader, _marked(curve), notes_of(predictor.demands, predictor.misfit, curve)
    )


def _interval(speedups: Sequence[float], doubt: float) -> tuple[float, float, float]:
    """The likely speed-up and where it may lie: where the draws do, and within a doubt, a logarithm."""
    likely, drawn = speedups[0], speedups[1:] or speedups
    low, high = np.percentile(drawn, _INNER)
    factor = math.exp(doubt)
    return likely, float(min(low, likely / factor)), float(max(high, likely * factor))


def _forecast(
    demands: Demands, setup: Setup, speedups: tuple[float, float, float], wait_share: float
) -> Forecast:
    now_per_s = 1 / demands.period_s
    likely, low, high = speedups
    larger = setup.size_ratio(demands)
    return Forecast(
        setting=Setting(setup.workers, setup.prefetch if setup.workers else None, setup.batch_size),
        steps_per_s=now_per_s * likely,
        low=now_per_s * low,
        high=now_per_s * high,
        samples_per_s=None if demands.samples is None else now_per_s * likely * demands.samples * larger,
        wait_share=wait_share,
        speedup=likely * larger,
        speedup_low=low * larger,
        speedup_high=high * larger,
    )


def _marked(curve: Iterable[Forecast]) -> tuple[Forecast, ...]:
    """Which is the best, and which would be enough: few workers, few batches in stock, the recorded size."""

    def order(one: Forecast) -> tuple[int, int, int]:
        return one.setting.batch_size or 0, one.setting.workers, one.setting.prefetch or 0

    ordered = sorted(curve, key=order)
    best = max(ordered, key=lambda one: one.speedup)
    near = [one for one in ordered if one.speedup >= _ENOUGH * best.speedup]
    sizes = {one.setting.batch_size for one in ordered if one.recorded}
    enough = min(
        near,
        key=lambda one: (one.setting.batch_size not in sizes, one.setting.workers, one.setting.prefetch or 0),
    )
    return tuple(dataclasses.replace(one, best=one is best, enough=one is enough) for one in ordered)
