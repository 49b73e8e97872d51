"""The cost of a self-tuning loader that has settled on the user's own settings: bench/tune.py --wrapper.

It takes turns with torch's own loader with the same settings. That one runs twice: kept, like the tuned one,
and restarted for each turn, as in a sweep, so that the cost of keeping workers is not billed to the tuner.
CPU time is what a busy machine changes least.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from torch.utils.data import DataLoader
from tune_work import Work, works

import unstarve
from unstarve.model import LoaderSettings
from unstarve.tune.cpu_clock import CpuClock

_TURN_S = 1.5
_ROUNDS = 9
_TWO = LoaderSettings(2, 2)


class Turn(NamedTuple):
    """Of one runner; all per batch."""

    period_s: float
    main_cpu_s: float
    workers_cpu_s: float


Make = Callable[[Work, LoaderSettings], DataLoader[Any]]


def settled(work: Work, make: Make) -> Iterator[Any]:
    """Return batches of a tuned loader that was told to stop before it could try anything."""
    loader = unstarve.autotune(make(work, work.own), budget_steps=1)
    batches = iter(loader)
    while not loader.tuning.settled:
        work.step(next(batches))
    assert loader.tuning.chosen == work.own
    return batches


def turn(batches: Iterator[Any], work: Work, seconds: float) -> Turn:
    step, clock = work.step, time.perf_counter
    for _ in range(work.own.in_flight + 2 * max(work.own.num_workers, 4)):
        step(next(batches))
    workers = [worker.pid for worker in getattr(batches, "_workers", ())]
    spent, begun, count = CpuClock(workers), clock(), 0
    while clock() - begun < seconds or count % max(work.own.num_workers, 1):
        step(next(batches))
        count += 1
    wall_s, cpu = clock() - begun, spent.per_step(count, 0.0, 0.0)
    assert cpu is not None, "a worker has died"
    return Turn(wall_s / count, cpu.main_s, cpu.workers_s)


def compare(work: Work, make: Make) -> dict[str, list[Turn]]:
    """Return the turns of each loader, round by round, with another one first in each round."""
    kept, tuned = iter(make(work, work.own)), settled(work, make)
    runners: dict[str, Callable[[], Iterator[Any]]] = {
        "plain, kept": lambda: kept,
        "tuned": lambda: tuned,
        "plain, anew": lambda: iter(make(work, work.own)),
    }
    names = list(runners)
    turns: dict[str, list[Turn]] = {name: [] for name in names}
    for number in range(_ROUNDS):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            turns[name].append(turn(runners[name](), work, _TURN_S))
    return turns


def wrapped() -> list[Work]:
    """Return the workloads; batches that cost nothing show what is added to each."""
    bare = Work("bare, no workers", int, LoaderSettings(0), batch=1, step_ms=0)
    names = ("cpu", "cpu, crowded", "tiny", "hand-off", "fine")
    return [*(work for work in works() if work.name in names), replace(bare, name="bare", own=_TWO), bare]


def show(names: list[str] | None, make: Make) -> None:
    """Print a line for each training: medians over the rounds."""
    print("a settled loader ÷ torch's with the same settings: speed, CPU per batch\n")
    print(f"{'':<18}{'÷ plain, kept':>30}{'÷ begun anew':>16}{'main, µs per batch':>20}")
    print(
        f"{'workload':<18}{'speed':>8}{'main':>7}{'workers':>9}{'all':>6}{'speed':>8}{'all':>8}"
        f"{'plain':>12}{'tuned':>8}"
    )
    for work in wrapped():
        if names and work.name not in names:
            continue
        turns = compare(work, make)
        tuned, kept, anew = turns["tuned"], turns["plain, kept"], turns["plain, anew"]
        print(
            f"{work.name:<18}{_ratio(kept, tuned, _period):>8.3f}{_ratio(tuned, kept, _main):>7.2f}"
            f"{_ratio(tuned, kept, _workers):>9.2f}{_ratio(tuned, kept, _all):>6.2f}"
            f"{_ratio(anew, tuned, _period):>8.3f}{_ratio(tuned, anew, _all):>8.2f}"
            f"{_median(kept, _main) * 1e6:>12.1f}{_median(tuned, _main) * 1e6:>8.1f}",
            flush=True,
        )


def _period(one: Turn) -> float:
    return one.period_s


def _main(one: Turn) -> float:
    return one.main_cpu_s


def _workers(one: Turn) -> float:
    return one.workers_cpu_s


def _all(one: Turn) -> float:
    return one.main_cpu_s + one.workers_cpu_s


def _median(turns: list[Turn], what: Callable[[Turn], float]) -> float:
    return statistics.median(map(what, turns))


def _ratio(of: list[Turn], to: list[Turn], what: Callable[[Turn], float]) -> float:
    """Return the median over the rounds; nan if there is nothing to compare."""
    pairs = [(what(one), what(other)) for one, other in zip(of, to, strict=True)]
    return statistics.median(one / other if other else math.nan for one, other in pairs)
