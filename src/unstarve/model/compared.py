"""Two runs, or two ways to load, side by side."""

from __future__ import annotations

from dataclasses import dataclass

from unstarve.model.diagnosis import Diagnosis
from unstarve.model.nouns import Shown


@dataclass(frozen=True, slots=True)
class LoadLog:
    """Times of one way to load, batch by batch, for `plot_comparison`.

    From an evaluator's log, a run file or DALI's metrics; `step_s` is empty when the source has only
    loading times.
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
    """Training on loaded batches compared to training on replayed ones."""

    headline: str
    """One sentence for a person."""
    speedup: float | None
    """Ideal over real throughput; None when either log has no steps."""
    lost_share: float | None
    """Share of real training time that free loading would save: 1 − 1 / `speedup`, at least 0."""
    real_wait_share: float | None
    """Time inside ``next()`` over step time."""
    ideal_wait_share: float | None
    real_per_s: float | None
    ideal_per_s: float | None
    unit: str
    """Unit of the rates: ``samples`` if all sizes are known, otherwise ``batches``."""


@dataclass(frozen=True, slots=True)
class Change:
    """B's speed compared to A's."""

    ratio: float
    """B's throughput divided by A's, in the unit of the row ``throughput``."""
    low: float
    high: float
    shown: bool
    """The difference is larger than the noise of both runs."""


@dataclass(frozen=True, slots=True)
class Gate:
    """One ``--fail-if`` and its outcome."""

    expression: str
    failed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity of both runs; None when unknown."""

    metric: str
    """Its name in gates."""
    unit: str
    a: float | None
    b: float | None
    label: str
    """Its name for a person, which says whose time it is."""


@dataclass(frozen=True, slots=True)
class OperatorChange:
    """An operator in two profiled runs: seconds per step, on the device where there is one."""

    name: str
    a_s: float
    b_s: float


@dataclass(frozen=True, slots=True)
class Comparison(Shown):
    """B compared to A, and whether the gates pass."""

    a: Diagnosis
    b: Diagnosis
    change: Change | None
    """None when either run is too short."""
    headline: str
    rows: tuple[Row, ...]
    gates: tuple[Gate, ...]
    notes: tuple[str, ...] = ()
    """Why throughput and step mean change by different factors, where they do."""
    operators: tuple[OperatorChange, ...] = ()
    """Those that changed the most, if both runs were profiled."""
