"""The real search, windows and tuner along trainings that are played on a made-up clock (bench/tune_sim.py).

Everything is drawn from fixed seeds: what holds once holds always.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from tune_sim import FORECASTS, Scene, Weather, course, many_cores, scenes, sweep_s, tune

from unstarve.model import LoaderSettings
from unstarve.predict.demand import BatchDemand
from unstarve.tune import live_search
from unstarve.tune.live_search import Options
from unstarve.tune.memory_fit import MemoryFit, MemoryGauge
from unstarve.tune.tuner import Tuner

SCENES = {scene.name: scene for scene in scenes()}
WORKS = list(SCENES)[:10]
"""Those of bench/tune_work.py."""
SEEDS = range(2)


@pytest.mark.parametrize("name", WORKS)
def test_on_a_machine_with_little_noise_it_comes_close_to_the_best_soon(name: str) -> None:
    scene = SCENES[name]
    results = [tune(scene, Weather(seed, noise=0.02)) for seed in SEEDS]
    assert min(result.of_the_best for result in results) >= 0.95
    assert min(result.of_own for result in results) >= 0.98
    assert max(result.seconds for result in results) <= 0.12 * sweep_s(scene)


@pytest.mark.parametrize("name", list(SCENES)[: -len(many_cores())])
def test_on_a_noisy_machine_it_is_not_worse_than_the_users_own_and_ends(name: str) -> None:
    scene = SCENES[name]
    results = [tune(scene, Weather(seed, noise=0.15)) for seed in SEEDS]
    assert min(result.of_own for result in results) >= 0.97
    assert max(result.seconds for result in results) <= 0.2 * sweep_s(scene)


def test_waiting_for_a_remote_store_gains_far_more_than_workers_on_all_cores_could() -> None:
    scene = SCENES["latency"]
    capped = course(scene, LoaderSettings(2, 8)).period_s
    for seed in SEEDS:
        chosen = tune(scene, Weather(seed, noise=0.15)).found.chosen
        assert capped / course(scene, chosen).period_s >= 3


@pytest.mark.parametrize("forecast", FORECASTS)
@pytest.mark.parametrize("name", [scene.name for scene in many_cores()])
def test_on_16_cores_it_comes_close_to_the_best_whatever_the_forecast_and_the_epochs(
    name: str, forecast: str
) -> None:
    assert tune(SCENES[name], Weather(1, noise=0.05), None, FORECASTS[forecast]).of_the_best >= 0.9


def test_epochs_of_25_steps_and_batches_in_bursts_take_150_steps_at_most() -> None:
    for seed in SEEDS:
        result = tune(SCENES["images, 25 steps"], Weather(seed, noise=0.05))
        assert result.steps <= 150
        assert result.of_own > 2
        assert result.found.gain is not None
        assert result.found.gain.low > 1.5


def test_where_nothing_else_is_faster_the_users_own_settings_stay() -> None:
    for name in ("cpu", "fine"):
        for seed in SEEDS:
            assert tune(SCENES[name], Weather(seed, noise=0.02)).of_own >= 0.99


# --- conditions change after tuning ---


class NoTime:
    """Stands in for a clock of CPU time: all that these scenes do is wait."""

    def __init__(self, pids: tuple[int, ...]) -> None: ...

    age_s = 0.0

    def per_step(self, steps: int, wait_s: float, loop_s: float) -> None: ...


class Played:
    """A tuner that is told of steps as its scene has them; scenes may change meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, own: LoaderSettings) -> None:
        monkeypatch.setattr(live_search, "CpuClock", NoTime)
        monkeypatch.setattr(live_search, "free_memory", lambda *_, **__: MemoryFit(1 << 50, None))
        monkeypatch.setattr(MemoryGauge, "is_short", lambda _: False)
        data = TensorDataset(torch.zeros(1).expand(10**6))
        loader: DataLoader[Any] = DataLoader(
            data, num_workers=own.num_workers, prefetch_factor=own.prefetch_factor
        )
        self.tuner = Tuner(loader, Options(max_workers=16))
        self._ticket, self._stream, *_ = self.tuner.begin_epoch(loader)
        self._weather = Weather(seed=1, noise=0.02)

    def train(self, scene: Scene, seconds: float) -> None:
        until, settings = self._weather.now + seconds, self.tuner.settings
        self._start(settings)
        n = 0
        while self._weather.now < until:
            here = course(scene, settings).steady
            asked, got = self._weather.step(*here[n % len(here)])
            n += 1
            wanted = self.tuner.delivered(asked, got, None, self._stream)
            if wanted is not None and wanted != settings:
                settings = wanted
                self._start(settings)

    def _start(self, settings: LoaderSettings) -> None:
        self.tuner.started(self._ticket, settings, (), 0, 0.0)


def waiting(seconds: float) -> Scene:
    """Batches that somebody else makes, and a step of 10 ms."""
    return Scene(
        f"waiting {seconds}", LoaderSettings(2, 2), (BatchDemand(blocked_s=seconds, step_delay_s=0.01),)
    )


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_when_a_store_becomes_slow_or_a_cache_warm_it_searches_again(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, LoaderSettings(2, 2))
    tuner = played.tuner
    played.train(waiting(0.018), 60)
    assert tuner.tuning.settled
    assert tuner.tuning.rounds == 1
    assert tuner.tuning.keep  # two workers are enough
    played.train(waiting(0.4), 180)
    assert tuner.tuning.settled
    assert tuner.tuning.rounds == 2
    assert tuner.tuning.chosen.num_workers == 16
    played.train(waiting(0.001), 180)
    assert tuner.tuning.settled
    assert tuner.tuning.rounds == 3
    assert tuner.tuning.keep
