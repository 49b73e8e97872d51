"""Forecast: the throughput of a recorded loader under other settings, with an interval.

`model_run` turns a run into a `LoaderModel`, which simulates the recorded batches twice, under the recorded
settings and under the new ones: whatever both have in common, errors of the model included, cancels out of
their ratio. It repeats this for several draws of what is uncertain (which batches come, how far the model's
constants are off); the interval covers most of the draws. Draws are stratified and the same each time, so
that two reports of one run agree.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from unstarve.analyze.batch_production import RecordedTraining, recorded_trainings
from unstarve.analyze.timeline import WARMUP_STEPS
from unstarve.errors import NotPredictableError, UsageError
from unstarve.model import CostSource, Forecast, Run, Scenario, Setting, WhatIf
from unstarve.predict.demand import BatchDemand, LoaderDemand, loader_demand
from unstarve.predict.head_start import lasting_demand
from unstarve.predict.scenario import (
    IDLE_CORES,
    USUAL_COUPLING,
    USUAL_DISK_DEPTH,
    USUAL_DISK_POWER,
    Draw,
    FullScenario,
    SimulatedPace,
    fill_in,
    pace_of,
    with_competition,
)
from unstarve.predict.training_job import jobs_of
from unstarve.words import percent, times
from unstarve.words import workers as workers_in_words

WORKERS = (0, 1, 2, 4, 8, 16)
"""Worker counts that `unstarve whatif` asks about by default."""
REPORTED_WORKERS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Worker counts for a report, whose advice names one of them."""
_MOST_SETTINGS = 60
_ENOUGH = 0.97
"""Share of the best throughput that counts as equally good."""
_LEAST_DOUBT = 0.08
"""Uncertainty of every forecast, as a logarithm; the next three are added to it."""
_DOUBT_PER_DOUBLING = 0.03
"""Added per doubling or halving of the workers."""
_DOUBT_OF_SPINNING = 0.3
"""Added for a step of several threads whose cores other processes want, too."""
_DOUBT_OF_CROSSING = 0.06
"""Added when workers appear or disappear: another process then does the work, in another way."""
_DOUBT_OF_WAITING = 0.05
"""Uncertainty of the speed without any waiting: steps vary."""
_LARGEST_SHARE = 0.999
"""Keeps the speed-up of a training that only waits finite."""
_INNER = (10, 90)
"""Percentiles of the draws that bound the interval."""

_DRAWS = 8
_DRAWN_BATCHES = 48
"""A drawn sequence may be shorter than the recorded one: it adds variety, not precision."""
_BLOCK = 8
"""Neighbouring batches drawn together: slowness often lasts for a while."""
_CPU_DOUBT, _STEP_DOUBT = 0.12, 0.06
"""Standard deviations of a logarithm: CPU work, and the step, beside another number of workers."""
_HANDOFF_DOUBT, _UNSEEN_HANDOFF_DOUBT = 0.2, 0.4
"""The same for the hand-off, if it was measured and if it never was."""
_START_DOUBT, _UNSEEN_START_DOUBT = 0.25, 0.6
"""The same for creating workers: a fork takes longer the more memory the training process holds."""
_FOREIGN_DOUBT = 0.2
_COUPLING_DOUBT = 0.4
"""Half a range: how much the threads of a step wait for each other beside workers."""
_DISK_DOUBT = 0.3
"""Half a range: how well a disk serves many readers at once."""
_REMOTE_DOUBT, _REMOTE_DOUBT_WITH_WORKERS = 0.25, 0.4
"""Range below 1: a server may answer more workers more slowly, or be at its limit already."""
_USUAL_READ_BYTES = 1 << 17
_DISK_POWER_PER_DOUBLING = 1 / 12
_LEAST_DEPTH, _MOST_DEPTH = 4.0, 32.0

_WORTH_TELLING = 0.1
_POOR_FIT = 0.15
_FEW_BATCHES = 40


def model_run(run: Run, warmup_steps: int = WARMUP_STEPS) -> LoaderModel:
    """A model of the run's main loader. Raises `NotPredictableError` when it cannot be modelled."""
    found = model_trainings(run, recorded_trainings(run, warmup_steps))
    if isinstance(found, LoaderModel):
        return found
    raise NotPredictableError(f"{run.path} cannot be modelled: {found}")


def model_trainings(run: Run, trainings: Sequence[RecordedTraining]) -> LoaderModel | str:
    """The same from the run's `recorded_trainings`; the reason when it cannot be modelled."""
    why = "no batch was delivered to a training loop"
    for job in jobs_of(trainings):
        found = loader_demand(run, job)
        if isinstance(found, LoaderDemand):
            return model_loader(found)
        why = found
    return why


def model_loader(demand: LoaderDemand) -> LoaderModel:
    """A model of a loader with this demand."""
    draws = _draws(demand)
    demand = lasting_demand(with_competition(demand, draws[0]), draws[0])
    now = fill_in(demand, Scenario())
    return LoaderModel(demand, draws, tuple(pace_of(demand, now, draw.as_recorded()) for draw in draws))


@dataclass(frozen=True, slots=True)
class LoaderModel:
    """Forecasts how one recorded loader would do under other settings."""

    demand: LoaderDemand
    draws: tuple[Draw, ...]
    """The first is the most likely one: the recorded batches as they came."""
    recorded: tuple[SimulatedPace, ...]
    """The simulated pace of the recorded settings, per draw."""

    def __call__(self, scenario: Scenario) -> Forecast:
        """Throughput under the scenario, with an interval."""
        full, now = fill_in(self.demand, scenario), fill_in(self.demand, Scenario())
        if full == now:
            likely = self.recorded[0].period_s
            speedups = [likely / draw.period_s for draw in self.recorded]
            return _forecast(self.demand, full, _interval(speedups, _LEAST_DOUBT), self.demand.wait_share)
        eases = full.eases(now)
        draws = [draw.as_recorded() for draw in self.draws] if eases else self.draws
        new = [pace_of(self.demand, full, draw) for draw in draws]
        speedups = [a.period_s / b.period_s for a, b in zip(self.recorded, new, strict=True)]
        found = _eased(speedups, self.misfit) if eases else _interval(speedups, self._doubt(now, full))
        return _forecast(self.demand, full, self._limited(full, now, found), new[0].wait_share)

    def speedup(self, scenario: Scenario) -> float:
        """The likely speed-up in steps per second, without an interval: much cheaper."""
        full, now = fill_in(self.demand, scenario), fill_in(self.demand, Scenario())
        found = self.recorded[0].period_s / pace_of(self.demand, full, self.draws[0]).period_s
        return self._limited(full, now, (found, found, found))[0]

    def _limited(
        self, full: FullScenario, now: FullScenario, speedups: tuple[float, float, float]
    ) -> tuple[float, float, float]:
        """No faster than if loading were free; only the interval is, where the step gets cores back."""
        if full.batch_size != now.batch_size:
            return speedups
        likely, low, high = speedups
        most = 1 / (1 - min(self.demand.wait_share, _LARGEST_SHARE))
        if likely > most:
            likely, low = most, min(low, max(most / math.exp(_LEAST_DOUBT), 1.0))
        if not full.frees_cores(now):
            high = min(high, most * math.exp(_DOUBT_OF_WAITING))
        return likely, min(low, likely), max(high, likely)

    def _doubt(self, now: FullScenario, full: FullScenario) -> float:
        """Uncertainty of the speed-up, as a logarithm: grows with the distance from the recorded settings."""
        doublings = abs(math.log2((full.workers + 1) / (now.workers + 1)))
        crossing = _DOUBT_OF_CROSSING if (full.workers > 0) != (now.workers > 0) else 0.0
        machine = self.demand.machine
        # Threads of a step that spin for each other on cores that others use, too: nobody can tell.
        spinning = min(machine.step_threads - 1, 1.0) * min(now.competition.threads / machine.cores, 1.0)
        doubt = max(self.misfit, _LEAST_DOUBT) + _DOUBT_OF_SPINNING * spinning
        return doubt + _DOUBT_PER_DOUBLING * doublings + crossing

    @property
    def busy_cores(self) -> float | None:
        """Cores that other processes kept busy; None where they leave training alone."""
        demand = self.demand
        used = demand.machine.foreign
        competing = demand.competition.threads > _WORTH_TELLING and used != 0
        if not competing or (used is not None and used < IDLE_CORES):
            return None
        return min(demand.competition.threads if used is None else used, demand.machine.cores)

    def quiet_steps_per_s(self, forecast: Forecast) -> float:
        """The likely speed in a forecast's setting if nothing else used the cores."""
        asked = forecast.setting
        quiet = Scenario(asked.workers, asked.prefetch, batch_size=asked.batch_size, foreign=0.0)
        return max(self.speedup(quiet) / self.demand.period_s, forecast.steps_per_s)

    @property
    def misfit(self) -> float:
        """Error of the model on the recorded run itself, as a logarithm."""
        return abs(math.log(self.demand.period_s / self.recorded[0].period_s))


def what_if(
    model: LoaderModel,
    workers: Sequence[int] = WORKERS,
    prefetch: Sequence[int] = (),
    batch_sizes: Sequence[int] = (),
) -> WhatIf:
    """Forecasts for all combinations of the given settings, and for the recorded ones."""
    now = fill_in(model.demand, Scenario())
    if batch_sizes and now.batch_size is None:
        raise UsageError("this loader has no batch_size to change")
    counts = sorted({*workers, now.workers})
    asked = [
        Scenario(workers=count, prefetch=depth if count else None, batch_size=size)
        for size, count, depth in product(
            batch_sizes or (now.batch_size,), counts, prefetch or (now.prefetch,)
        )
    ]
    if len(asked) > _MOST_SETTINGS:
        raise UsageError(
            f"at most {_MOST_SETTINGS} combinations of settings at a time, got {len(asked)}: ask for fewer"
        )
    found: dict[Setting, Forecast] = {}
    for scenario in (*asked, Scenario()):
        forecast = model(scenario)
        found[forecast.setting] = forecast
    recorded = model(Scenario()).setting
    curve = [dataclasses.replace(one, recorded=one.setting == recorded) for one in found.values()]
    if model.busy_cores is not None:
        curve = [dataclasses.replace(one, quiet_steps_per_s=model.quiet_steps_per_s(one)) for one in curve]
    marked = _marked(curve)
    costs = _cost_source(model.demand, curve)
    return WhatIf(model.demand.loader, marked, _notes(model, marked), costs, model.busy_cores)


def _cost_source(demand: LoaderDemand, curve: Iterable[Forecast]) -> CostSource:
    """Workers measure their hand-off, and their start if every epoch makes new ones."""
    starts = demand.epochs is None or demand.config.get("persistent_workers") or demand.makes_workers
    if demand.workers and starts and all(one.setting.workers for one in curve):
        return "recorded"
    return "measured" if demand.machine.costs.measured else "typical"


def _notes(model: LoaderModel, curve: Iterable[Forecast]) -> tuple[str, ...]:
    """Assumptions behind these forecasts that a reader should know."""
    demand, forecasts = model.demand, list(curve)
    notes = []
    if not demand.workers and any(one.setting.workers for one in forecasts):
        notes.append("the run had no workers: the cost of the hand-off is estimated from the size of a batch")
    made_s = fmean(one.cpu_s + one.collate_s + one.blocked_s + one.disk_s for one in demand.batches)
    if fmean(one.disk_s for one in demand.batches) > _WORTH_TELLING * made_s:
        notes.append("how the disk serves several workers at once is unknown: the intervals allow for it")
    if demand.waits_together:
        notes.append("workers wait for locks or pipes they may share: assumes that more workers do not help")
    if len({one.setting.batch_size for one in forecasts}) > 1:
        notes.append("assumes that a step grows with its batch; the intervals allow for one that does not")
    if model.busy_cores is not None:
        notes.append(_of_neighbours(model, forecasts))
    if model.misfit > _POOR_FIT:
        notes.append("the model fits the recorded run poorly: the intervals are wider for it")
    if demand.head_start > 1 + _WORTH_TELLING:
        notes.append(
            "a slow warm-up let the workers get ahead: the measured steps waited less than later ones will, "
            f"which take {percent(demand.head_start - 1)} longer"
        )
    if len(demand.batches) < _FEW_BATCHES:
        notes.append(f"only {len(demand.batches)} batches were measured")
    return tuple(notes)


def _of_neighbours(model: LoaderModel, curve: Sequence[Forecast]) -> str:
    """What other processes did, and the speed without them."""
    cores = f"{model.busy_cores:.1f} of {model.demand.machine.cores:g} cores"
    enough = next(one for one in curve if one.enough)
    gain = (enough.quiet_steps_per_s or enough.steps_per_s) / enough.steps_per_s
    return (
        f"other processes used {cores}: assumes that they still do; on a quiet machine, training with "
        f"{workers_in_words(enough.setting.workers)} would run {times(gain)} as fast as this forecast"
    )


def _interval(speedups: Sequence[float], doubt: float) -> tuple[float, float, float]:
    """The likely speed-up and its interval: covers most draws and `doubt`, a logarithm."""
    likely, drawn = speedups[0], speedups[1:] or speedups
    low, high = np.percentile(drawn, _INNER)
    factor = math.exp(doubt)
    return likely, float(min(low, likely / factor)), float(max(high, likely * factor))


def _eased(speedups: Sequence[float], misfit: float) -> tuple[float, float, float]:
    """The same for a change that only takes work away: it cannot slow training down.

    What the model misses of the recorded run is either in the way of the change or goes away with it, so the
    doubt is no larger than the effect.
    """
    likely = speedups[0]
    doubt = max(min(misfit, math.log(max(likely, 1.0))), _LEAST_DOUBT)
    _, low, high = _interval(speedups, doubt)
    return likely, max(low, min(likely, 1.0)), high


def _forecast(
    demand: LoaderDemand, full: FullScenario, speedups: tuple[float, float, float], wait_share: float
) -> Forecast:
    now_per_s = 1 / demand.period_s
    likely, low, high = speedups
    larger = full.size_ratio(demand)
    return Forecast(
        setting=Setting(full.workers, full.prefetch if full.workers else None, full.batch_size),
        steps_per_s=now_per_s * likely,
        low=now_per_s * low,
        high=now_per_s * high,
        samples_per_s=None if demand.samples is None else now_per_s * likely * demand.samples * larger,
        wait_share=wait_share,
        speedup=likely * larger,
        speedup_low=low * larger,
        speedup_high=high * larger,
    )


def _marked(curve: Iterable[Forecast]) -> tuple[Forecast, ...]:
    """The curve in order, with the best setting and the smallest that is enough marked."""

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


def _draws(demand: LoaderDemand) -> tuple[Draw, ...]:
    """The likely draw first, then the others."""
    power, depth = _disk(demand.read_bytes)
    # Only sampled stacks show that workers wait for each other.
    remote = 0.0 if demand.waits_together else 1.0
    likely = Draw(demand.batches, power, depth, remote)
    doubt = _REMOTE_DOUBT_WITH_WORKERS if demand.workers > 1 else _REMOTE_DOUBT
    random = np.random.default_rng(0)
    cpu, step, handoff, start, foreign = (_normal(random) for _ in range(5))
    disk, server, growth, coupling = (_uniform(random) for _ in range(4))
    others = [
        Draw(
            batches=_resampled(demand.batches, random),
            disk_power=min(max(power + _DISK_DOUBT * (2 * disk[k] - 1), 0.0), 1.0),
            disk_depth=depth,
            remote_power=0.5 * server[k] if demand.waits_together else 1 - doubt * server[k],
            cpu=math.exp(_CPU_DOUBT * cpu[k]),
            step=math.exp(_STEP_DOUBT * step[k]),
            handoff=math.exp((_HANDOFF_DOUBT if demand.workers else _UNSEEN_HANDOFF_DOUBT) * handoff[k]),
            start=math.exp((_START_DOUBT if demand.makes_workers else _UNSEEN_START_DOUBT) * start[k]),
            foreign=math.exp(_FOREIGN_DOUBT * foreign[k]),
            step_power=growth[k],
            coupling=USUAL_COUPLING + _COUPLING_DOUBT * (2 * coupling[k] - 1),
        )
        for k in range(_DRAWS)
    ]
    return likely, *others


def _disk(read_bytes: float | None) -> tuple[float, float]:
    """How a disk's speed grows with the number of reads in flight, and up to how many, by their size.

    Small reads leave a disk idle most of the time; large ones saturate it. Measured on three machines: 1.3
    times the speed for twice the reads of 64 to 128 KB, up to 16 of them; hardly more for reads of 2 MB.
    """
    if not read_bytes:
        return USUAL_DISK_POWER, USUAL_DISK_DEPTH
    doublings = math.log2(read_bytes / _USUAL_READ_BYTES)
    power = USUAL_DISK_POWER - _DISK_POWER_PER_DOUBLING * doublings
    depth = USUAL_DISK_DEPTH / 2 ** (doublings / 2)
    return min(max(power, 0.05), 0.9), min(max(depth, _LEAST_DEPTH), _MOST_DEPTH)


def _resampled(batches: tuple[BatchDemand, ...], random: np.random.Generator) -> tuple[BatchDemand, ...]:
    block = min(_BLOCK, len(batches))
    count = -(-min(len(batches), _DRAWN_BATCHES) // block)
    firsts = random.integers(0, len(batches) - block + 1, count)
    return tuple(one for first in firsts for one in batches[first : first + block])


def _uniform(random: np.random.Generator) -> NDArray[np.float64]:
    """Stratified: one value in every stretch of the range, in random order."""
    return (random.permutation(_DRAWS) + 0.5) / _DRAWS


def _normal(random: np.random.Generator) -> NDArray[np.float64]:
    """Quantiles of the normal distribution, in random order (Tukey's approximation)."""
    p = _uniform(random)
    return 4.91 * (p**0.14 - (1 - p) ** 0.14)
