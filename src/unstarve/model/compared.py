"""Two runs, or two ways to load, side by side."""

from __future__ import annotations

from dataclasses import dataclass

from unstarve.model.concluded import Diagnosis
from unstarve.model.nouns import Shown


@dataclass(frozen=True, slots=True)
class LoadLog:
    """Batch by batch times of one way to load: what `plot_comparison` draws.

    Made from an evaluator's log, a run file or DALI's metrics; `step_s` is empty where the source
    knows only how long loading took.
    """

    label: str
    mode: str
    load_s: tuple[float, ...]
    """Time inside ``next()``, per batch."""
    step_s: tuple[float, ...]
    """From one delivered batch to the next; one shorter than `load_s` or empty."""
    sizes: tuple[int | None, ...]
    """Samples per batch; empty where unknown."""
    gpu_busy_share: float | None = None


@dataclass(frozen=True, slots=True)
class LoadComparison:
    """Training on really loaded batches against training on replayed ones."""

    headline: str
    """One sentence for a person."""
    speedup: float | None
    """Ideal over real throughput; None where either log knows no steps."""
    lost_share: float | None
    """Share of real training time that free data would save: 1 − 1 / `speedup`, at least 0."""
    real_wait_share: float | None
    """Time inside ``next()`` over step time."""
    ideal_wait_share: float | None
    real_per_s: float | None
    ideal_per_s: float | None
    unit: str
    """What the rates count: ``samples`` where all sizes are known, else ``batches``."""


@dataclass(frozen=True, slots=True)
class Change:
    """How B's speed compares to A's."""

    ratio: float
    """B's throughput divided by A's."""
    low: float
    high: float
    shown: bool
    """The difference is larger than the noise of both runs."""


@dataclass(frozen=True, slots=True)
class Gate:
    """One ``--fail-if`` and how it came out."""

    expression: str
    failed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity of both runs; None where a run does not know it."""

    metric: str
    unit: str
    a: float | None
    b: float | None


@dataclass(frozen=True, slots=True)
class Comparison(Shown):
    """B against A, and whether that passes."""

    a: Diagnosis
    b: Diagnosis
    change: Change | None
    """None when either run is too short."""
    headline: str
    rows: tuple[Row, ...]
    gates: tuple[Gate, ...]
