"""What-if questions about a loader's settings, and their answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from unstarve.model.nouns import Shown

Stage = str
"""``cpu``, ``disk``, ``remote``, ``collate``, ``handoff``, ``pin``, ``sampler`` or ``start``."""


CostSource = Literal["recorded", "measured", "typical"]
"""``recorded`` by the run itself, ``measured`` on its machine, or ``typical``: measured on other machines."""


class MachineTimes(NamedTuple):
    """What loading needs of a machine besides the user's code, as `predict.machine_times` measures it."""

    message_s: float
    """CPU time to take a message with one descriptor from another process."""
    descriptor_s: float
    """CPU time for each further descriptor."""
    fresh_s_per_byte: float
    """CPU time per byte of memory that is written to for the first time."""
    fork_s: float
    """Forking a process without much memory."""
    fork_s_per_byte: float
    """Added per byte of its private memory."""
    half_crowded: float
    """Duration of CPU work while half of the cores compute, relative to one core alone."""
    crowded: float
    """The same while all cores compute."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What differs from the recorded run; None and missing entries mean unchanged."""

    workers: int | None = None
    prefetch: int | None = None
    """Batches in progress per worker, torch's ``prefetch_factor``."""
    in_order: bool | None = None
    persistent: bool | None = None
    """Workers stay alive between epochs."""
    batch_size: int | None = None
    left: Mapping[Stage, float] = field(default_factory=dict)
    """Share of each stage's cost per batch that is left."""
    evened: float = 0.0
    """Share of the difference between slow and typical batches that is gone."""
    foreign: float = 1.0
    """Share of other processes' work on the same cores that is left."""
    cores: float | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings of a loader that a what-if question can change."""

    workers: int
    prefetch: int | None
    """None without workers."""
    batch_size: int | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """Predicted throughput under one setting; for the recorded setting, the measured one."""

    setting: Setting
    steps_per_s: float
    low: float
    """Bounds of `steps_per_s` in most cases."""
    high: float
    samples_per_s: float | None
    wait_share: float
    speedup: float
    """Samples per second relative to the recorded run (steps, where samples are not counted)."""
    speedup_low: float
    speedup_high: float
    recorded: bool = False
    best: bool = False
    """The fastest of the settings asked about."""
    enough: bool = False
    """The smallest setting that is about as fast as the best."""
    quiet_steps_per_s: float | None = None
    """The same without the other processes that used the cores; None where there were none."""


@dataclass(frozen=True, slots=True)
class WhatIf(Shown):
    """One loader under several settings."""

    loader: str
    curve: tuple[Forecast, ...]
    notes: tuple[str, ...]
    """Assumptions behind the forecasts, in sentences."""
    costs: CostSource = "typical"
    """Where the cost of the hand-off, of fresh memory and of new workers comes from."""
    busy_cores: float | None = None
    """Cores that other processes kept busy while the run was recorded, where that slows training down."""

    @property
    def recorded(self) -> Forecast:
        return next(one for one in self.curve if one.recorded)

    @property
    def best(self) -> Forecast:
        return next(one for one in self.curve if one.best)

    @property
    def enough(self) -> Forecast:
        return next(one for one in self.curve if one.enough)


class Forecaster(Protocol):
    """Answers what-if questions about one run."""

    def __call__(self, scenario: Scenario) -> Forecast:
        """Throughput under the scenario, with an interval."""

    def speedup(self, scenario: Scenario) -> float:
        """The likely speed-up in steps per second, without an interval: much cheaper."""
