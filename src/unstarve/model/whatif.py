"""What would be if the loader were set up differently: a question, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from unstarve.model.nouns import Shown

Stage = str
"""``cpu``, ``disk``, ``remote``, ``collate``, ``handoff``, ``pin``, ``sampler`` or ``start``."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is different from the recorded run; what is None or not named stays as it was."""

    workers: int | None = None
    prefetch: int | None = None
    """Batches per worker that are under way, torch's ``prefetch_factor``."""
    in_order: bool | None = None
    persistent: bool | None = None
    """Workers live on between epochs."""
    batch_size: int | None = None
    left: Mapping[Stage, float] = field(default_factory=dict)
    """Share of a stage's cost that is left, per batch."""
    evened: float = 0.0
    """Share of the difference between slow and typical batches that is gone."""
    foreign: float = 1.0
    """Share of other people's work on the same cores that is left."""
    cores: float | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """How a loader is set up."""

    workers: int
    prefetch: int | None
    """None without workers."""
    batch_size: int | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """How training would go; for the recorded setting, how it went."""

    setting: Setting
    steps_per_s: float
    low: float
    """Of `steps_per_s`: where it will lie in most cases."""
    high: float
    samples_per_s: float | None
    wait_share: float
    speedup: float
    """Samples per second against the recorded run (steps, where samples are not counted)."""
    speedup_low: float
    speedup_high: float
    recorded: bool = False
    best: bool = False
    """The fastest of those that were asked for."""
    enough: bool = False
    """The smallest that is about as fast as the best."""


@dataclass(frozen=True, slots=True)
class WhatIf(Shown):
    """One loader under several settings."""

    loader: str
    curve: tuple[Forecast, ...]
    notes: tuple[str, ...]
    """What prediction had to assume, in sentences."""

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
        """How training would go, and how sure that is."""

    def speedup(self, scenario: Scenario) -> float:
        """The likely speed-up alone, in steps: a fraction of the work."""
