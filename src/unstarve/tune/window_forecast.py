"""A forecast from one window: how much faster other settings would be than the measured one.

The window says what a batch takes of workers, cores and the training loop; the model of `unstarve.predict`
plays it under other settings. It is a lead: the search measures what it points to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from unstarve.model import LoaderSettings, Scenario
from unstarve.model.forecasts import Stage
from unstarve.model.parts import CACHED, GATHER, GPU_IMAGES, IMAGES, RING, THREADS
from unstarve.predict.demand import BatchDemand, LoaderDemand
from unstarve.predict.forecast import LoaderModel
from unstarve.predict.recorded_run import EpochCosts, RecordedMachine
from unstarve.predict.scenario import Draw, fill_in, pace_of
from unstarve.tune.cpu_clock import CpuTime
from unstarve.tune.step_window import StepWindow
from unstarve.tune.window_reading import queued_in_wait_s

IMAGE_SPEED = 3.0
"""How much less CPU time unstarve takes for an image than torchvision: a lead, measured before it counts."""
GPU_IMAGE_LEFT = 0.03
"""The share of an image's CPU time that is left where a GPU decodes it: reading the file, and its header."""
HANDOFF_LEFT = 0.1
"""The share of the hand-off that is left in reused shared memory, or between threads: the same."""
_LEFT: Mapping[str, Mapping[Stage, float]] = {
    IMAGES: {"cpu": 1 / IMAGE_SPEED, "handoff": HANDOFF_LEFT},
    GPU_IMAGES: {"cpu": GPU_IMAGE_LEFT, "handoff": HANDOFF_LEFT},
    RING: {"handoff": HANDOFF_LEFT},
    THREADS: {"cpu": 0.3, "handoff": HANDOFF_LEFT},
    GATHER: {"cpu": 0.1, "handoff": 0.0},
    CACHED: {"cpu": 0.05, "remote": 0.05, "disk": 0.05},
}
"""What is left of each cost with a part: leads, too."""
_FULL = 0.85
"""From this share of the cores on, workers wait for one another."""
_MOST_IN_STEP = 0.95
"""Share of the measured time that CPU time can explain at most."""


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What is known of a loader's batches besides their speed."""

    nbytes: int = 0
    tensors: int = 2
    pinned: bool = False
    copied: bool = False
    """Training uses a GPU, and batches are not there yet."""
    epoch: int | None = None
    """Batches per epoch, if every epoch starts its workers again."""


def forecast_from(window: StepWindow, cores: float, facts: BatchFacts) -> WindowForecast | None:
    """Predict from a window; None if its CPU time is unknown."""
    if window.cpu is None or window.steady_s <= 0:
        return None
    demand = _demand(window, window.cpu, cores, facts)
    draw = Draw(demand.batches)  # one, the likely one: training waits for this forecast
    recorded = pace_of(demand, fill_in(demand, Scenario()), draw.as_recorded())
    return WindowForecast(window, LoaderModel(demand, (draw,), (recorded,)))


@dataclass
class WindowForecast:
    """What a window's model says of other settings."""

    window: StepWindow
    model: LoaderModel
    _known: dict[LoaderSettings, float] = field(default_factory=dict)

    def period_s(self, settings: LoaderSettings) -> float:
        """The predicted time per step, in seconds."""
        if settings not in self._known:
            scenario = self._scenario(settings)
            self._known[settings] = self.window.period_s / self.model.speedup(scenario)
        return self._known[settings]

    def doubt(self, settings: LoaderSettings) -> float:
        """The factor by which `period_s` may be wrong, in either direction."""
        forecast = self.model(self._scenario(settings))
        return max(math.sqrt(forecast.speedup_high / forecast.speedup_low), 1.0)

    def _scenario(self, settings: LoaderSettings) -> Scenario:
        """What changes; a part saves only what it did not save before."""
        left = {} if settings.part == self.window.settings.part else _LEFT.get(settings.part, {})
        count = _makers(settings, self.model.demand.machine.cores)
        return Scenario(workers=count, prefetch=settings.prefetch_factor, left=left)


def _makers(settings: LoaderSettings, cores: float) -> int:
    """How many workers or threads make batches."""
    return max(int(cores), 1) if settings.shared else settings.num_workers


def _demand(window: StepWindow, cpu: CpuTime, cores: float, facts: BatchFacts) -> LoaderDemand:
    batch, threads = _batch(window, cpu, cores)
    settings, nbytes = window.settings, float(facts.nbytes)
    count = _makers(settings, cores)
    epochs = None
    if facts.epoch:
        start_s = window.start_s * facts.epoch
        epochs = EpochCosts(facts.epoch, 1 / facts.epoch, start_s, 0.0, 0.0, 0.0)
    return LoaderDemand(
        loader="",
        config={"num_workers": count, "prefetch_factor": settings.prefetch_factor},
        workers=count,
        pinned=facts.pinned,
        batches=(batch,),
        samples=None,
        nbytes=nbytes,
        tensors=facts.tensors,
        memory_s=cpu.kernel_s,
        collate_memory_s=cpu.kernel_s if settings.num_workers and not settings.threads else 0.0,
        read_bytes=None,
        readers=1.0,
        period_s=window.period_s,
        wait_share=window.wait_share,
        machine=RecordedMachine(
            cores, 0.0, grouped=False, step_threads=min(max(threads, 1.0), max(cores, 1.0)), slowdown=1.0
        ),
        epochs=epochs,
        waits_together=False,
    )


def _batch(window: StepWindow, cpu: CpuTime, cores: float) -> tuple[BatchDemand, float]:
    """What a batch takes, and the threads that a step keeps busy."""
    count, step_s = _makers(window.settings, cores), max(window.step_s, 1e-6)
    loop_s = min(cpu.loop_s, step_s)
    if count == 0:
        making_s = min(cpu.wait_s, window.wait_s)
        blocked_s = window.wait_s - making_s - queued_in_wait_s(window, cpu)
        batch = BatchDemand(cpu_s=making_s, blocked_s=max(blocked_s, 0.0))
        threads = (cpu.main_s - cpu.wait_s) / step_s
    else:
        # Threads are workers whose CPU time is the training process's own.
        made_s = cpu.workers_s
        if window.settings.threads:
            made_s = max(cpu.main_s - cpu.wait_s - cpu.loop_s, 0.0)
        busy_s = max(count * window.steady_s, made_s)
        queued_s = cpu.queued_s
        if cpu.all_s > _FULL * cores * window.steady_s:  # more than the queue of first threads shows
            queued_s = max(queued_s, made_s * (count / cores - 1))
        threads = 1.0 if window.settings.threads else (cpu.main_s - cpu.wait_s) / step_s
        batch = BatchDemand(
            cpu_s=made_s,
            blocked_s=max(busy_s - made_s - queued_s, 0.0),
            take_s=0.0 if window.settings.threads else min(cpu.wait_s, _MOST_IN_STEP * window.wait_s),
        )
    return batch._replace(step_s=loop_s, step_delay_s=step_s - loop_s), threads
