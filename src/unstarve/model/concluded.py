"""What was concluded: a `Diagnosis` and its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from unstarve.model.causes import Cause, State
from unstarve.model.nouns import Shown
from unstarve.model.resources import GpuSummary, MemorySummary
from unstarve.model.views import Lane
from unstarve.model.whatif import Forecaster, WhatIf


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution in milliseconds."""

    mean: float
    p50: float
    p95: float
    max: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a person is told first, and why to believe it."""

    state: State
    cause: Cause
    headline: str
    """One sentence for a person."""
    evidence: tuple[str, ...]
    """The numbers behind it, in sentences that can be checked."""
    second: Cause | None = None
    """The next largest cause of waiting, where it matters."""


@dataclass(frozen=True, slots=True)
class Share:
    """One line of the budget."""

    cause: Cause
    seconds: float
    share: float


@dataclass(frozen=True, slots=True)
class Headroom:
    """How much faster training would be if data were free."""

    speedup: float
    low: float
    high: float
    method: str
    """``replay`` (measured) or ``estimate`` (from the recorded waits)."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Speed of the measured part: steps of one rank, samples of all ranks together."""

    steps_per_s: float | None
    samples_per_s: float | None


@dataclass(frozen=True, slots=True)
class Overhead:
    """unstarve's own cost in the training process, measured while it ran."""

    us_per_step: float | None
    share: float | None


@dataclass(frozen=True, slots=True)
class LoaderSummary:
    """One loader over all ranks."""

    name: str
    where: str
    kind: str
    config: Mapping[str, Any]
    steps: int
    epochs: int
    wait_s: float
    startup_s: float
    """Making the iterators and waiting for each epoch's first batch."""
    samples: int | None
    bytes: int | None
    nested: bool
    background: bool
    """Consumed outside the main thread."""
    wait_ms: Spread | None
    source: str | None = None
    """The call that made it, as the user wrote it; None where it could not be found."""
    tensors: int | None = None
    """In a batch; None where they were not counted."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What making one batch of a loader takes, on average: seconds unless the name says otherwise."""

    loader: str
    workers: int
    batches: int
    """Batches that these means are made of."""
    samples: float
    fetch_s: float
    """Wall time of getting the samples; the next four are its parts."""
    cpu_s: float
    disk_s: float
    remote_s: float
    queued_s: float
    collate_s: float
    handoff_s: float
    """Shared memory, sending and unpacking."""
    pin_s: float
    sampler_s: float
    storage_bytes: float | None
    opens: float
    busy_share: float | None
    """Of the workers' time, making batches; None without workers."""
    tail: float
    """The slowest hundredth of the batches against the typical one."""


@dataclass(frozen=True, slots=True)
class FunctionCost:
    """Where a stack sampler found the time."""

    name: str
    file: str
    line: int
    where: Cause
    seconds: float
    share: float
    """Of all sampled time of the same kind: making batches, or the step."""


@dataclass(frozen=True, slots=True)
class SlowSample:
    """A sample that takes much longer than others."""

    index: int
    ms: float


@dataclass(frozen=True, slots=True)
class Gain:
    """Predicted throughput after a change divided by that before it."""

    predicted: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Advice:
    """One concrete change."""

    id: str
    title: str
    """What to do, in one line."""
    why: str
    """The measured reason, in one sentence."""
    change: Mapping[str, Any]
    """DataLoader arguments to set; empty when the change is elsewhere."""
    speedup: Gain | None
    """None when it cannot be predicted."""
    code: str
    """What to write."""


@dataclass(frozen=True, slots=True)
class Diagnosis(Shown):
    """What a run means: the one object that every view is made from."""

    command: tuple[str, ...]
    kind: str
    path: str
    started_at: float
    wall_s: float
    """From the first ``iter(loader)`` to the last recorded event of training, mean over ranks.

    For `unstarve ideal`: the measured real steps alone."""
    steps: int
    """Steps of the main loader, of one rank."""
    warmup_steps: int
    ranks: int
    device: str
    versions: Mapping[str, str]
    cut_short: bool
    """Some process never closed its record."""
    live: bool
    exit_code: int | None
    verdict: Verdict
    wait_share: float | None
    stall_share: float | None
    throughput: Throughput
    step_ms: Spread | None
    wait_ms: Spread | None
    budget: tuple[Share, ...]
    headroom: Headroom | None
    overhead: Overhead
    loaders: tuple[LoaderSummary, ...]
    lost: tuple[str, ...]
    gpu: GpuSummary | None = None
    waits: Mapping[Cause, float] = field(default_factory=dict)
    """Seconds of waiting per cause, of the measured part."""
    demand: Demand | None = None
    functions: tuple[FunctionCost, ...] = ()
    slow_samples: tuple[SlowSample, ...] = ()
    advice: tuple[Advice, ...] = ()
    system: Mapping[str, Any] = field(default_factory=dict)
    """``cores``, ``quota_cores``, ``filesystems``, …: what the training process knew of its machine."""
    typical: tuple[Lane, ...] = ()
    """A few steps that are like most others, of the rank that waited the most; seconds from their begin."""
    whatif: WhatIf | None = None
    """The loader under other numbers of workers; None where it cannot be modelled."""
    forecaster: Forecaster | None = field(default=None, repr=False, compare=False)
    """Predicts what advice would gain; None where the loader cannot be modelled."""
    memory: MemorySummary | None = None
    """Of the rank that waited the most; None where nobody looked, as in older runs."""
    walk: tuple[str, ...] = ()
    """The questions people ask in turn, with this run's answers."""
