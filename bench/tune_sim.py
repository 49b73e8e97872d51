"""How well the tuner chooses under noise, on simulated trainings.

Each scene is a workload of bench/tune_work.py, or a harder one, simulated by the discrete-event model of the
loader. The real search and the real windows see its steps on a simulated clock with random noise: on each
step, and on all steps for some seconds, as on a busy machine. So choices are judged against the truth, over
any number of seeds, and the machine that runs this may be busy.

    python bench/tune_sim.py [--only NAME…] [--seeds N] [--noise SHARE]
"""

from __future__ import annotations

import argparse
import functools
import math
import random
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace

from unstarve.model import LoaderSettings
from unstarve.predict.demand import BatchDemand
from unstarve.predict.simulate import LoaderSetup, WorkerStart, simulate
from unstarve.tune.live_search import WARM_UP
from unstarve.tune.search import Bounds, Search, SearchResult, WorkerLimits
from unstarve.tune.step_window import StepWindow, WindowCollector, WindowPace

CORES = 2
ALL_SETTINGS = 1 + 16 * 8
GRID = (
    LoaderSettings(0),
    *(LoaderSettings(count, depth) for count in (1, 2, 3, 4, 6, 8, 12, 16) for depth in (1, 2, 4, 8)),
)
START = WorkerStart(worker_s=0.012, boot_s=0.03)
SWEEP_S = 2.0
"""Seconds for which a sweep measures each setting."""
_DRIFT_S = 4.0
"""Seconds until the machine's noise level has changed."""
_PLAYED = 480
_TWO = LoaderSettings(2, 2)


@dataclass(frozen=True)
class Scene:
    """A training: the demands of its batches, in milliseconds, and the user's own settings."""

    name: str
    own: LoaderSettings
    works: tuple[BatchDemand, ...]
    disk_power: float = 1.0
    disk_depth: float = math.inf
    remote_limit: float = math.inf
    switching: float = 0.01
    """Share that each worker beyond the cores adds to all CPU work."""

    def setup(self, settings: LoaderSettings) -> LoaderSetup:
        return LoaderSetup(
            settings.num_workers, settings.prefetch_factor or 1, in_order=True, pinned=False, cores=CORES,
            disk_power=self.disk_power, disk_depth=self.disk_depth, remote_limit=self.remote_limit,
            remote_power=1.0 if math.isinf(self.remote_limit) else 0.0,
        )  # fmt: skip


@dataclass(frozen=True)
class Course:
    """A setting without noise: for each step, the time of training and the wait after it."""

    start_s: float
    fill: tuple[tuple[float, float], ...]
    steady: tuple[tuple[float, float], ...]
    main_cpu_s: float
    workers_cpu_s: float

    @property
    def period_s(self) -> float:
        return statistics.fmean(step + wait for step, wait in self.steady)


@functools.cache
def course(scene: Scene, settings: LoaderSettings) -> Course:
    count = settings.num_workers
    busier = 1 + scene.switching * max(count - CORES, 0)
    works = [one._replace(cpu_s=one.cpu_s * busier, collate_s=one.collate_s * busier) for one in scene.works]
    fill = settings.in_flight + count + 1
    played = simulate(works, fill + _PLAYED, scene.setup(settings), START if count else None)
    times = zip(played.ask_s[1:], played.got_s[1:], played.got_s, strict=False)
    steps = [(asked - last, got - asked) for asked, got, last in times]
    making = statistics.fmean(one.cpu_s + one.collate_s for one in works)
    sending = statistics.fmean(one.send_s for one in works) if count else 0.0
    taking = statistics.fmean(one.take_s + one.index_s + one.step_s for one in works)
    return Course(
        start_s=played.got_s[0],
        fill=tuple(steps[:fill]),
        steady=tuple(steps[fill:]),
        main_cpu_s=taking + (0.0 if count else making),
        workers_cpu_s=making + sending if count else 0.0,
    )


class Weather:
    """How much slower than without noise each step is."""

    def __init__(self, seed: int, noise: float) -> None:
        self._random = random.Random(seed)
        self._noise = noise
        self._mood = self._random.gauss(0, 1)
        self.now = 0.0

    def step(self, step_s: float, wait_s: float) -> tuple[float, float]:
        """When a batch is asked for and when it is there."""
        self._mood *= math.exp(-(step_s + wait_s) / _DRIFT_S)
        self._mood += math.sqrt(1 - math.exp(-2 * (step_s + wait_s) / _DRIFT_S)) * self._random.gauss(0, 1)
        slower = math.exp(self._noise * (self._mood + 2 * self._random.gauss(0, 1)))
        asked = self.now + step_s * slower
        self.now = asked + wait_s * slower
        return asked, self.now


@dataclass(frozen=True)
class Result:
    """The result of tuning in one scene with one seed."""

    found: SearchResult
    of_the_best: float
    of_own: float
    seconds: float
    tried: tuple[LoaderSettings, ...]


def window(
    scene: Scene, settings: LoaderSettings, weather: Weather, pace: WindowPace, *, anew: bool
) -> StepWindow:
    """Measure a setting as a round does, without its start and the filling of the pipeline."""
    here, collector = course(scene, settings), WindowCollector(settings, pace)
    if anew:
        weather.now += here.start_s
        collector.begin(2 * settings.num_workers or WARM_UP)
    for step_s, wait_s in _steps(here, weather, anew=anew):
        measured = collector.add(*weather.step(step_s, wait_s))
        if measured is not None:
            return replace(
                measured, cpu_s=here.main_cpu_s + here.workers_cpu_s, workers_cpu_s=here.workers_cpu_s
            )
    raise AssertionError("steps never end")


def _steps(here: Course, weather: Weather, *, anew: bool) -> Iterator[tuple[float, float]]:
    if anew:
        yield from here.fill
    n = int(weather.now * 1000)  # anywhere in the epoch
    while True:
        yield here.steady[n % len(here.steady)]
        n += 1


def tune(scene: Scene, weather: Weather, pace: WindowPace | None = None) -> Result:
    asking = Search(scene.own, scene.own, Bounds(WorkerLimits(CORES, 16))).run()
    wanted, last = next(asking), None
    tried: list[LoaderSettings] = []
    while True:
        anew = last is None or last.num_workers != wanted.num_workers
        tried.append(wanted)
        try:
            last, wanted = (
                wanted,
                asking.send(window(scene, wanted, weather, pace or WindowPace(), anew=anew)),
            )
        except StopIteration as stop:
            found = stop.value
            break
    period_s = course(scene, found.chosen).period_s
    return Result(
        found,
        of_the_best=best_period_s(scene) / period_s,
        of_own=course(scene, scene.own).period_s / period_s,
        seconds=weather.now,
        tried=tuple(tried),
    )


@functools.cache
def best_period_s(scene: Scene) -> float:
    return min(course(scene, settings).period_s for settings in GRID)


@functools.cache
def sweep_s(scene: Scene) -> float:
    """Seconds to measure every setting."""
    starts = [course(scene, settings) for settings in GRID]
    filling = statistics.fmean(one.start_s + sum(map(sum, one.fill)) for one in starts)
    return ALL_SETTINGS * (SWEEP_S + filling)


def _ms(varies: float = 0.15, **demand: float) -> tuple[BatchDemand, ...]:
    """Return batches that demand about this many milliseconds each: equal ones would fall into step."""
    draw = random.Random(7)
    return tuple(
        BatchDemand(
            **{f"{name}_s": ms / 1e3 * math.exp(draw.gauss(0, varies)) for name, ms in demand.items()}
        )
        for _ in range(_PLAYED)
    )


def _tail() -> tuple[BatchDemand, ...]:
    """One sample in a hundred takes long."""
    draw = random.Random(7)
    slow = [sum(draw.randrange(100) == 0 for _ in range(16)) for _ in range(_PLAYED)]
    usual = _ms(blocked=9, cpu=0.3, send=0.2, take=0.2, step_delay=2)
    return tuple(
        one._replace(blocked_s=one.blocked_s + 0.0595 * n) for one, n in zip(usual, slow, strict=True)
    )


def scenes() -> list[Scene]:
    """The works of bench/tune_work.py on two cores, then harder ones."""
    cpu = _ms(cpu=8, collate=0.1, send=0.2, take=0.2, step_delay=2)
    read = _ms(cpu=6, disk=9, send=0.2, take=0.2, step_delay=2)
    tiny = _ms(cpu=0.1, collate=0.05, send=0.2, take_delay=0.7, index=0.05, step_delay=0.25)
    far = _ms(blocked=160, cpu=0.5, send=0.2, take=0.2, step_delay=2)
    slow_disk = _ms(cpu=1, disk=20, send=0.2, take=0.2, step_delay=2)
    return [
        Scene("cpu", _TWO, cpu),
        Scene("cpu, no workers", LoaderSettings(0), cpu),
        Scene("cpu, crowded", LoaderSettings(12, 2), cpu),
        Scene("latency", _TWO, far),
        Scene("disk", _TWO, read, disk_power=0.4, disk_depth=4),
        Scene("mixed", _TWO, _ms(blocked=33, cpu=1.8, send=0.2, take=0.2, step_delay=2)),
        Scene("tail", _TWO, _tail()),
        Scene("tiny", LoaderSettings(4, 2), tiny),
        Scene("hand-off", _TWO, _ms(cpu=0.3, collate=0.6, send=7.5, take=0.4, take_delay=0.8, step_delay=2)),
        Scene("fine", LoaderSettings(1, 2), _ms(cpu=0.9, send=0.2, take=0.2, step_delay=10)),
        Scene("slow receiving", _TWO, _ms(cpu=5, collate=4, send=0.3, take=2.5, step_delay=2)),
        Scene("limited remote", _TWO, far, remote_limit=6),
        Scene("limited disk", _TWO, slow_disk, disk_power=0.1, disk_depth=8),
        Scene("contention", LoaderSettings(8, 2), _ms(cpu=6, collate=1, send=0.2, take=0.2, step=6)),
        Scene("near", LoaderSettings(4, 2), _ms(blocked=36, cpu=0.5, send=0.2, take=0.2, step_delay=8)),
        Scene("latency, no workers", LoaderSettings(0), far),
        Scene("tail, shallow", LoaderSettings(8, 1), _tail()),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    names = [one.name for one in scenes()]
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=names, help="; ".join(names))
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--noise", type=float, default=0.1, help="share by which the machine's speed varies")
    options = parser.parse_args()
    print(f"{options.seeds} seeds, noise of {options.noise:.0%}\n")
    print("scene                 own   most   ÷ best   5 %   < .95    ÷ own worst   < .97", end="")
    print("   took, s ÷ sweep  worst")
    for scene in scenes():
        if options.only and scene.name not in options.only:
            continue
        show(scene, [tune(scene, Weather(seed, options.noise)) for seed in range(options.seeds)])


def show(scene: Scene, results: list[Result]) -> None:
    best, own = sorted(one.of_the_best for one in results), sorted(one.of_own for one in results)
    chosen = statistics.mode(one.found.chosen for one in results)
    took = [one.seconds for one in results]
    times = [one / sweep_s(scene) for one in took]
    print(
        f"{scene.name:<20}{_brief(scene.own):>5}{_brief(chosen):>7}"
        f"{statistics.fmean(best):>9.3f}{best[len(best) // 20]:>6.2f}{_share(best, 0.95):>8.0%}"
        f"{statistics.fmean(own):>9.2f}{own[0]:>6.2f}{_share(own, 0.97):>8.0%}"
        f"{statistics.fmean(took):>10.1f}{statistics.fmean(times):>8.1%}{max(times):>7.1%}",
        flush=True,
    )


def _share(values: list[float], below: float) -> float:
    return sum(value < below for value in values) / len(values)


def _brief(settings: LoaderSettings) -> str:
    return f"{settings.num_workers}×{settings.prefetch_factor or 0}"


if __name__ == "__main__":
    main()
