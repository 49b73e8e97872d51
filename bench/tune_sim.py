"""How well the tuner chooses under noise, on simulated trainings.

Each scene is a workload of bench/tune_work.py, or a harder one, simulated by the discrete-event model of the
loader. The real search and the real windows see its steps on a simulated clock with random noise: on each
step, and on all steps for some seconds, as on a busy machine. So choices are judged against the truth, over
any number of seeds, and the machine that runs this may be busy.

With --forecast none or wrong, the search has no forecast, or one that is upside down.

    python bench/tune_sim.py [--only NAME…] [--seeds N] [--noise SHARE] [--forecast model|none|wrong]
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from unstarve.model import LoaderSettings
from unstarve.predict.demand import BatchDemand
from unstarve.predict.simulate import LoaderSetup, WorkerStart, simulate
from unstarve.tune.bounds import Bounds, WorkerLimits
from unstarve.tune.cpu_clock import CpuTime
from unstarve.tune.live_search import WARM_UP, takes_epochs, with_start
from unstarve.tune.search import Search
from unstarve.tune.search_result import SearchResult
from unstarve.tune.step_window import StepWindow, WindowCollector, WindowPace
from unstarve.tune.window_forecast import BatchFacts, WindowForecast, forecast_from

ALL_SETTINGS = 1 + 16 * 8
_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)
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
    cores: int = 2
    epoch: int | None = None
    """Batches per epoch; workers start with each."""
    start: WorkerStart = START
    image_speed: float | None = None
    """How much less CPU time unstarve takes for an image; None if it cannot read them."""
    warm_up_s: float = 0.0
    """What the training's first step takes longer."""

    def makers(self, settings: LoaderSettings) -> int:
        """Threads that share each batch are one per core."""
        return self.cores if settings.shared else settings.num_workers

    def setup(self, settings: LoaderSettings) -> LoaderSetup:
        return LoaderSetup(
            self.makers(settings), settings.prefetch_factor or 1, in_order=True, pinned=False,
            cores=self.cores, disk_power=self.disk_power, disk_depth=self.disk_depth,
            remote_limit=self.remote_limit, remote_power=1.0 if math.isinf(self.remote_limit) else 0.0,
        )  # fmt: skip

    def grid(self) -> tuple[LoaderSettings, ...]:
        kinds = ("", "images") if self.image_speed else ("",)
        some = [
            LoaderSettings(count, depth, part)
            for part in kinds for count in _COUNTS for depth in (1, 2, 4, 8)
        ]  # fmt: skip
        return LoaderSettings(0), *some

    def batches(self, settings: LoaderSettings) -> list[BatchDemand]:
        busier = 1 + self.switching * max(self.makers(settings) - self.cores, 0)
        if not settings.threads:
            return [w._replace(cpu_s=w.cpu_s * busier, collate_s=w.collate_s * busier) for w in self.works]
        faster = busier / (self.image_speed or 1.0)
        return [
            w._replace(cpu_s=w.cpu_s * faster, send_s=0.0, take_s=0.0, take_delay_s=0.0) for w in self.works
        ]

    def start_of(self, settings: LoaderSettings) -> WorkerStart | None:
        if settings.num_workers == 0:
            return None
        return WorkerStart(0.0, 0.0) if settings.threads else self.start


@dataclass(frozen=True)
class Course:
    """A setting without noise: for each step, the time of training and the wait after it."""

    start_s: float
    fill: tuple[tuple[float, float], ...]
    steady: tuple[tuple[float, float], ...]
    epoch: tuple[tuple[float, float], ...]
    """A whole epoch, its start first; empty if epochs are long."""
    cpu: CpuTime

    @property
    def period_s(self) -> float:
        played = self.epoch or self.steady
        return sum(step + wait for step, wait in played) / len(played)


@functools.cache
def course(scene: Scene, settings: LoaderSettings) -> Course:
    count = scene.makers(settings)
    works = scene.batches(settings)
    fill = settings.in_flight + count + 1
    played = simulate(works, fill + _PLAYED, scene.setup(settings), scene.start_of(settings))
    times = zip(played.ask_s[1:], played.got_s[1:], played.got_s, strict=False)
    steps = [(asked - last, got - asked) for asked, got, last in times]
    epoch: list[tuple[float, float]] = []
    if scene.epoch:
        last_s = works[0].step_s + works[0].step_delay_s
        epoch = [(last_s, played.got_s[0]), *steps[: scene.epoch - 1]]
    making = statistics.fmean(one.cpu_s + one.collate_s for one in works)
    sending = statistics.fmean(one.send_s for one in works) if count else 0.0
    taking = statistics.fmean(one.take_s + one.index_s for one in works)
    step = statistics.fmean(one.step_s for one in works)
    in_main = making if not count or settings.threads else 0.0
    return Course(
        start_s=played.got_s[0],
        fill=tuple(steps[:fill]),
        steady=tuple(steps[fill:]),
        epoch=tuple(epoch),
        cpu=CpuTime(
            main_s=taking + step + in_main,
            workers_s=making + sending if count and not settings.threads else 0.0,
            wait_s=taking + (0.0 if count else making),
            loop_s=step,
        ),
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
    steps: int
    tried: tuple[LoaderSettings, ...]


class Playing:
    """A training under way: the loader's setting, where it is in its epoch, and the search's windows."""

    def __init__(self, scene: Scene, weather: Weather, pace: WindowPace) -> None:
        self.scene, self.weather, self.pace = scene, weather, pace
        self.steps = 0
        self._at = 0
        """Batches of this epoch."""
        self._running: LoaderSettings | None = None
        self._coming: Iterator[tuple[float, float]] = iter(())
        self._firsts: dict[tuple[str, int], float] = {}

    def window(self, wanted: LoaderSettings) -> StepWindow:
        """Measure a setting, as a live search does."""
        collector = WindowCollector(wanted, self.pace)
        whole = self.scene.epoch is not None and takes_epochs(wanted, self.scene.epoch)
        if whole and self._at:
            self._finish_epoch()
        found = None
        while found is None:
            if self.scene.epoch and self._at == 0:
                collector.begin_epoch(self.weather.now, whole=whole)
                self._start(wanted, collector)
            elif self._running != wanted:
                self._start(wanted, collector)
            found = self._step(collector)
            if self.scene.epoch and self._at == self.scene.epoch:
                found = collector.end_epoch(self.weather.now) or found
                self._at, self._running = 0, None
        here = course(self.scene, wanted)
        found = replace(found, cpu=here.cpu)
        if not self.scene.epoch or found.whole_epochs:
            return found
        start_s = 0.0 if wanted.threads else self.scene.start.worker_s * wanted.num_workers
        return with_start(found, self.scene.epoch, start_s, self._firsts.get(wanted.makers))

    def _step(self, collector: WindowCollector) -> StepWindow | None:
        step_s, wait_s = next(self._coming)
        if self.steps == 1:
            step_s += self.scene.warm_up_s
        self.steps += 1
        self._at += 1
        found = collector.add(*self.weather.step(step_s, wait_s))
        if collector.first_wait_s is not None:
            self._firsts[collector.settings.makers] = collector.first_wait_s
        return found

    def _start(self, wanted: LoaderSettings, collector: WindowCollector) -> None:
        here, before = course(self.scene, wanted), self._running
        self._running = wanted
        same = before is not None and before.makers == wanted.makers
        if self.scene.epoch and self._at == 0:
            self._coming = itertools.chain(here.epoch, here.steady)
        else:
            if not same:
                self.weather.now += here.start_s
            n = int(self.weather.now * 1000) % len(here.steady)  # anywhere in the epoch
            steady = itertools.cycle((*here.steady[n:], *here.steady[:n]))
            self._coming = steady if same else itertools.chain(here.fill, steady)
        collector.begin((2 if same else 1) * wanted.num_workers or WARM_UP)

    def _finish_epoch(self) -> None:
        """Let the setting that runs now have the rest of the epoch."""
        assert self.scene.epoch is not None
        while self._at < self.scene.epoch:
            self.weather.step(*next(self._coming))
            self.steps += 1
            self._at += 1
        self._at, self._running = 0, None


Foretell = Callable[[StepWindow, "Scene"], WindowForecast | None]


def model(window: StepWindow, scene: Scene) -> WindowForecast | None:
    """The tuner's own forecast."""
    return forecast_from(window, scene.cores, BatchFacts(epoch=scene.epoch))


def nothing(window: StepWindow, scene: Scene) -> None:
    """No forecast."""


def upside_down(window: StepWindow, scene: Scene) -> WindowForecast | None:
    """A forecast that takes waiting for computing and computing for waiting."""
    cpu = window.cpu
    assert cpu is not None
    waiting = max(window.settings.num_workers * window.steady_s - cpu.workers_s, 0.0)
    swapped = replace(cpu, workers_s=waiting, main_s=cpu.loop_s, wait_s=max(window.wait_s - cpu.wait_s, 0.0))
    return forecast_from(replace(window, cpu=swapped), scene.cores, BatchFacts(epoch=scene.epoch))


FORECASTS: dict[str, Foretell] = {"model": model, "none": nothing, "wrong": upside_down}


def tune(
    scene: Scene, weather: Weather, pace: WindowPace | None = None, foretell: Foretell = model
) -> Result:
    bounds = Bounds(
        WorkerLimits(scene.cores, 16), parts=frozenset(() if scene.image_speed is None else ("images",))
    )
    asking = Search(scene.own, scene.own, bounds, lambda window: foretell(window, scene)).run()
    playing = Playing(scene, weather, pace or WindowPace())
    wanted = next(asking)
    tried: list[LoaderSettings] = []
    while True:
        tried.append(wanted)
        try:
            wanted = asking.send(playing.window(wanted))
        except StopIteration as stop:
            found = stop.value
            break
    period_s = course(scene, found.chosen).period_s
    return Result(
        found,
        of_the_best=best_period_s(scene) / period_s,
        of_own=course(scene, scene.own).period_s / period_s,
        seconds=weather.now,
        steps=playing.steps,
        tried=tuple(tried),
    )


@functools.cache
def best_period_s(scene: Scene) -> float:
    return min(course(scene, settings).period_s for settings in scene.grid())


@functools.cache
def sweep_s(scene: Scene) -> float:
    """Seconds to measure every setting."""
    starts = [course(scene, settings) for settings in scene.grid()]
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
        *many_cores(),
    ]


def many_cores() -> list[Scene]:
    """Image scripts on 16 cores with a GPU: batches of 256 that take a worker over a second.

    An epoch of 25 steps has started its workers again before they are in step with each other.
    """
    images = _ms(0.03, cpu=1126, collate=20, send=3, take=3, step=3, step_delay=51)
    slow_start = WorkerStart(worker_s=0.03, boot_s=0.5)
    four, none = LoaderSettings(4, 2), LoaderSettings(0)
    return [
        Scene(
            f"images, {name}", own, images,
            cores=16, epoch=epoch, start=slow_start, image_speed=speed, warm_up_s=2.0,
        )
        for name, own, epoch, speed in (
            ("25 steps", four, 25, None),
            ("25 steps, ours", four, 25, 3.6),
            ("25 steps, 0", none, 25, None),
            ("80 steps", four, 80, None),
            ("80 steps, ours", four, 80, 3.6),
            ("1000 steps, ours", four, 1000, 3.6),
            ("1000 steps, 0", none, 1000, None),
        )
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    names = [one.name for one in scenes()]
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=names, help="; ".join(names))
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--noise", type=float, default=0.1, help="share by which the machine's speed varies")
    parser.add_argument("--forecast", choices=list(FORECASTS), default="model")
    options = parser.parse_args()
    print(f"{options.seeds} seeds, noise of {options.noise:.0%}\n")
    print("scene                 own   most   ÷ best   5 %   < .95    ÷ own worst   < .97", end="")
    print("   took, s  steps  trials ÷ sweep  worst")
    for scene in scenes():
        if options.only and scene.name not in options.only:
            continue
        foretell = FORECASTS[options.forecast]
        show(
            scene,
            [tune(scene, Weather(seed, options.noise), None, foretell) for seed in range(options.seeds)],
        )


def show(scene: Scene, results: list[Result]) -> None:
    best, own = sorted(one.of_the_best for one in results), sorted(one.of_own for one in results)
    chosen = statistics.mode(one.found.chosen for one in results)
    took = [one.seconds for one in results]
    times = [one / sweep_s(scene) for one in took]
    print(
        f"{scene.name:<20}{_brief(scene.own):>5}{_brief(chosen):>7}"
        f"{statistics.fmean(best):>9.3f}{best[len(best) // 20]:>6.2f}{_share(best, 0.95):>8.0%}"
        f"{statistics.fmean(own):>9.2f}{own[0]:>6.2f}{_share(own, 0.97):>8.0%}"
        f"{statistics.fmean(took):>10.1f}{statistics.fmean(one.steps for one in results):>7.0f}"
        f"{statistics.fmean(len(one.tried) for one in results):>8.1f}"
        f"{statistics.fmean(times):>8.1%}{max(times):>7.1%}",
        flush=True,
    )


def _share(values: list[float], below: float) -> float:
    return sum(value < below for value in values) / len(values)


def _brief(settings: LoaderSettings) -> str:
    return f"{settings.num_workers}{'*' if settings.threads else ''}×{settings.prefetch_factor or 0}"


if __name__ == "__main__":
    main()
