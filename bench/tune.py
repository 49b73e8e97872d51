"""How good the settings found by `unstarve.autotune` are, and how long finding them takes.

For each workload a loader tunes itself during training. Then a sweep measures settings one by one, workers
0–16 × prefetch 1–8, on a thin grid; the time for all 129 settings is extrapolated from it. Finally the tuned
loader, the best three settings of the sweep, the user's own and the best with no more workers than cores are
measured in turns. All of them keep their workers from turn to turn, as in an epoch of real training: new
processes with fresh memory are faster for a while. Settings are compared only within a round, and the median
of the rounds is printed. Which of the three is best is decided by the other rounds, because the luckiest in a
round looks faster than it is. It is a measurement, not a gate: the exit code is always 0. It takes 35 minutes
on two cores and needs an idle machine; bench/tune_sim.py judges the search alone and does not.

    python bench/tune.py [--only NAME…] [--quick] [--json FILE]
    python bench/tune.py --wrapper [--only NAME…]

--wrapper only compares a settled loader with torch's own: see bench/tune_wrapper.py.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import statistics
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tune_wrapper
from torch.utils.data import DataLoader, RandomSampler
from tune_work import Work, works

import unstarve
from unstarve.model import LoaderSettings, Trial
from unstarve.outputs import write_output

ALL_SETTINGS = 1 + 16 * 8
BARS = {"of the best": 0.95, "of the sweep's time": 0.15, "of the user's own": 0.97, "over capped": 3.0}
MOST_TUNING_S = 240.0


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    workers: tuple[int, ...] = (0, 1, 2, 3, 4, 6, 8, 12, 16)
    depths: tuple[int, ...] = (1, 2, 4, 8)
    window_s: float = 1.5
    """For each setting of the grid."""
    final_s: float = 2.0
    """For each of the last few, in each round."""
    rounds: int = 7

    def grid(self) -> list[LoaderSettings]:
        some = [LoaderSettings(count, depth) for count in self.workers if count for depth in self.depths]
        return [LoaderSettings(0), *some]


QUICK = Plan(workers=(0, 1, 2, 4, 8, 16), depths=(2, 8), window_s=1.0, final_s=1.0, rounds=3)


@dataclass(frozen=True)
class Outcome:
    """The result for one workload."""

    name: str
    own: LoaderSettings
    chosen: LoaderSettings
    best: LoaderSettings
    tuned_per_s: float
    """Batches; the ratios say how many times as fast that is."""
    of_the_best: float
    of_own: float
    over_capped: float
    tuning_s: float
    tuning_steps: int
    sweep_s: float
    """Of the grid."""
    reason: str
    tried: tuple[Trial, ...]
    swept: tuple[tuple[LoaderSettings, float], ...]
    """With batches per second; the fastest first."""

    @property
    def of_grid_time(self) -> float:
        return self.tuning_s / self.sweep_s

    @property
    def of_sweep_time(self) -> float:
        return self.tuning_s / (self.sweep_s / len(self.swept) * ALL_SETTINGS)


def loader_of(work: Work, settings: LoaderSettings) -> DataLoader[Any]:
    data = work.data
    return DataLoader(
        data,
        batch_size=work.batch,
        sampler=RandomSampler(data, replacement=True, num_samples=10**9),
        num_workers=settings.num_workers,
        prefetch_factor=settings.prefetch_factor,
    )


def rate(
    batches: Iterator[Any], work: Work, settings: LoaderSettings, seconds: float, ready: int = 0
) -> float:
    """Return batches per second, without those that fill the pipeline.

    Nor does it count batches that are already `ready`, or those made while training uses them up.
    """
    step = work.step
    for _ in range(ready + settings.in_flight + max(settings.num_workers, 1)):
        step(next(batches))
    begun = time.perf_counter()
    count = 0
    while time.perf_counter() - begun < seconds or count % max(settings.num_workers, 1):
        step(next(batches))
        count += 1
    return count / (time.perf_counter() - begun)


def measured(work: Work, settings: LoaderSettings, seconds: float) -> float:
    return rate(iter(loader_of(work, settings)), work, settings, seconds)


def tune(work: Work) -> tuple[Any, Iterator[Any], float]:
    """Train until the loader has settled; with a budget it does not search again during measurements."""
    loader = unstarve.autotune(loader_of(work, work.own), budget_s=MOST_TUNING_S)
    step, begun = work.step, time.perf_counter()
    batches = iter(loader)
    while not loader.tuning.settled and time.perf_counter() - begun < MOST_TUNING_S:
        for _ in range(10):
            step(next(batches))
    return loader, batches, time.perf_counter() - begun


def judge(work: Work, plan: Plan, cores: int) -> Outcome:
    loader, batches, tuning_s = tune(work)
    tuning = loader.tuning
    begun = time.perf_counter()
    swept = {settings: measured(work, settings, plan.window_s) for settings in plan.grid()}
    sweep_s = time.perf_counter() - begun
    by_speed = sorted(swept, key=swept.__getitem__, reverse=True)
    capped = next(settings for settings in by_speed if settings.num_workers <= cores)
    finalists: list[LoaderSettings | None] = [None, *dict.fromkeys((*by_speed[:3], work.own, capped))]
    rates: dict[LoaderSettings | None, list[float]] = {one: [] for one in finalists}
    kept = {one: batches if one is None else iter(loader_of(work, one)) for one in finalists}
    for turn in range(plan.rounds):
        for one in _rotated(finalists, turn):
            settings = one or tuning.chosen
            rates[one].append(rate(kept[one], work, settings, plan.final_s, ready=settings.in_flight))
    best = fastest(rates, by_speed[:3])
    return Outcome(
        name=work.name,
        own=work.own,
        chosen=tuning.chosen,
        best=best,
        tuned_per_s=statistics.median(rates[None]),
        of_the_best=over_the_fastest(rates, by_speed[:3]),
        of_own=over_the_fastest(rates, [work.own]),
        over_capped=over_the_fastest(rates, [capped]),
        tuning_s=tuning_s,
        tuning_steps=tuning.steps,
        sweep_s=sweep_s,
        reason=tuning.reason,
        tried=tuning.trials,
        swept=tuple((settings, swept[settings]) for settings in by_speed),
    )


Rates = Mapping[LoaderSettings | None, Sequence[float]]
"""Round by round; None is the tuned loader."""


def fastest(rates: Rates, some: Sequence[LoaderSettings], without: int | None = None) -> LoaderSettings:
    """Of some, by the median of all rounds `without` one."""

    def usual(one: LoaderSettings) -> float:
        return statistics.median(rate for turn, rate in enumerate(rates[one]) if turn != without)

    return max(some, key=usual)


def over_the_fastest(rates: Rates, some: Sequence[LoaderSettings]) -> float:
    """Return how many times as fast as the fastest of some the tuned loader is: a median of rounds."""
    return statistics.median(
        tuned / rates[fastest(rates, some, without=turn)][turn] for turn, tuned in enumerate(rates[None])
    )


def _rotated(finalists: list[LoaderSettings | None], turn: int) -> list[LoaderSettings | None]:
    """Return the finalists with another one first in each turn."""
    first = turn % len(finalists)
    return finalists[first:] + finalists[:first]


def brief(settings: LoaderSettings) -> str:
    return f"{settings.num_workers}×{settings.prefetch_factor or 0}"


def show(one: Outcome) -> None:
    print(
        f"{one.name:<16}{brief(one.own):>6}{brief(one.chosen):>7}{brief(one.best):>7}"
        f"{one.of_the_best:>9.2f}{one.of_own:>9.2f}{one.over_capped:>9.2f}"
        f"{one.tuning_s:>9.1f}{one.of_grid_time:>8.0%}{one.of_sweep_time:>8.0%}",
        flush=True,
    )


def show_bars(outcomes: list[Outcome]) -> None:
    worst = {
        "of the best": min(one.of_the_best for one in outcomes),
        "of the sweep's time": max(one.of_sweep_time for one in outcomes),
        "of the user's own": min(one.of_own for one in outcomes),
    }
    latency = [one.over_capped for one in outcomes if one.name == "latency"]
    if latency:
        worst["over capped"] = latency[0]
    for name, value in worst.items():
        met = value <= BARS[name] if "time" in name else value >= BARS[name]
        print(f"{name:<22}worst {value:.2f}, bar {BARS[name]:.2f}: {'met' if met else 'missed'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    names = list(dict.fromkeys(work.name for work in (*works(), *tune_wrapper.wrapped())))
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=names, help="; ".join(names))
    parser.add_argument("--quick", action="store_true", help="a coarser grid, shorter windows")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument(
        "--wrapper", action="store_true", help="measure the cost of a tuned loader that has settled"
    )
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    if options.wrapper:
        tune_wrapper.show(options.only, loader_of)
        return
    plan = QUICK if options.quick else Plan()
    cores = len(os.sched_getaffinity(0))
    machine = f"{platform.machine()}, {cores} cores, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}"
    print(f"{machine}; settings as workers × prefetch; {len(plan.grid())} swept\n")
    print("workload           own  tuned   best  ÷ best    ÷ own ÷ capped  took, s  ÷ grid   ÷ all")
    outcomes = []
    for work in works():
        if options.only and work.name not in options.only:
            continue
        outcomes.append(judge(work, plan, cores))
        show(outcomes[-1])
    print()
    show_bars(outcomes)
    if options.json:
        found = [dataclasses.asdict(one) for one in outcomes]
        write_output(options.json, json.dumps({"machine": machine, "outcomes": found}, indent=2))


if __name__ == "__main__":
    main()
