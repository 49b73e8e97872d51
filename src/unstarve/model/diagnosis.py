"""`Diagnosis` and its parts: what a run means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from unstarve.model.causes import Cause, Role, State
from unstarve.model.chart_data import Lane
from unstarve.model.device_copies import CopySummary
from unstarve.model.file_reads import ReadSummary
from unstarve.model.finding import Finding
from unstarve.model.forecasts import Forecaster, WhatIf
from unstarve.model.loaders import Maker
from unstarve.model.nouns import Shown
from unstarve.model.processor import ProcessorSummary
from unstarve.model.profile import Profile
from unstarve.model.rank_summary import RankSummary
from unstarve.model.resources import GpuSummary, MemorySummary


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution in milliseconds."""

    mean: float
    p50: float
    p95: float
    max: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer in one sentence, and the evidence for it."""

    state: State
    cause: Cause
    headline: str
    """One sentence for a person."""
    evidence: tuple[str, ...]
    """The numbers behind it, in sentences that a person can check."""
    second: Cause | None = None
    """The second largest cause of waiting, if it matters."""


@dataclass(frozen=True, slots=True)
class Share:
    """One line of the budget."""

    cause: Cause
    seconds: float
    share: float


@dataclass(frozen=True, slots=True)
class Outside:
    """Part of a run's wall time that is not in the budget."""

    what: str
    """``before training``, ``warm-up``, ``validation`` or ``after training``."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Headroom:
    """How much faster training would be if loading were free."""

    speedup: float
    low: float
    high: float
    method: str
    """``replay`` (measured) or ``estimate`` (from the recorded waits)."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Speed in the measured part: steps of one rank, samples of all ranks together."""

    steps_per_s: float | None
    samples_per_s: float | None


@dataclass(frozen=True, slots=True)
class Overhead:
    """unstarve's own cost in CPU time, measured while it ran; None where it was not."""

    us_per_step: float | None
    """In the training process: recording and the stack sampler."""
    share: float | None
    """Of one core, in the same process."""
    worker_us_per_batch: float | None = None
    """The same in the workers, per batch that they made; None without workers."""
    worker_share: float | None = None
    """Of the workers' time."""


_NO_LOSS = 0.98
"""A smaller lower bound is more than noise around no change at all."""


@dataclass(frozen=True, slots=True)
class Gain:
    """Predicted throughput after a change, relative to before. Below 1 it is a loss."""

    predicted: float
    low: float
    high: float

    @property
    def may_be_loss(self) -> bool:
        return self.low < _NO_LOSS


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
    """Code to write."""
    note: str = ""
    """What else changes, in one sentence, such as the order of batches; empty when batches stay the same."""
    command: str = ""
    """A command that tries the change without editing the source."""
    parts: tuple[str, ...] = ()
    """The ids of the changes that are made together; empty for a single change."""


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
    """Creating iterators and waiting for each epoch's first batch."""
    samples: int | None
    bytes: int | None
    nested: bool
    background: bool
    """Consumed outside the main thread."""
    wait_ms: Spread | None
    source: str | None = None
    """The call that created it, as the user wrote it; None when it was not found."""
    tensors: int | None = None
    """Tensors per batch; None when not counted."""
    statement: str = ""
    """What stands before the call, such as ``train_loader = ``; empty when that is not simple."""
    dataset: Mapping[str, Any] = field(default_factory=dict)
    """Facts about the dataset, for advice; see `Loader.dataset`."""
    role: Role = Role.UNKNOWN
    verdict: Verdict | None = None
    """Of a validation loader that takes a good part of the run; None for any other."""
    advice: tuple[Advice, ...] = ()
    """The same."""
    maker: Maker | None = None
    """The framework that created it or asked for it; None if the user's own line created it."""

    @property
    def dataset_name(self) -> str | None:
        """Its dataset by class and length: ``Images[50000]``."""
        name, length = self.config.get("dataset"), self.config.get("dataset_len")
        return None if name is None else str(name) if length is None else f"{name}[{length}]"


@dataclass(frozen=True, slots=True)
class Demand:
    """The mean cost of one batch of a loader, in seconds unless the name says otherwise."""

    loader: str
    workers: int
    batches: int
    """Number of batches behind these means."""
    samples: float | None
    """As throughput counts them; None when the samples of a batch could not be counted."""
    fetch_s: float
    """Wall time of fetching the samples; the next four are its parts."""
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
    """Share of the workers' time spent making batches; None without workers."""
    tail: float
    """Duration of the slowest 1% of batches, relative to the median."""
    helped_s: float = 0.0
    """CPU time that other threads of the fetching process spent on it."""


@dataclass(frozen=True, slots=True)
class FunctionCost:
    """Time of one function itself, without the functions it calls."""

    name: str
    """Never one of unstarve's: a fix has its public name, ``unstarve.CachedDataset``."""
    file: str
    """Without a source file: the module."""
    line: int
    """First line of the function; 0 without a source file."""
    where: Cause
    seconds: float
    """The counters' time, divided by what a stack sampler saw."""
    share: float
    """Of all time of its stage: fetching, collating or the step."""


@dataclass(frozen=True, slots=True)
class TransformCost:
    """Time of one transform in a container of a known library, with all functions it calls."""

    name: str
    calls: int
    seconds: float
    share: float
    """Of all time spent fetching."""


@dataclass(frozen=True, slots=True)
class SlowSample:
    """A sample that takes much longer than the others."""

    index: int
    ms: float
    file: str | None = None
    """The file it was read from, where that is known."""


@dataclass(frozen=True, slots=True)
class UnseenBatches:
    """What gave a training without a loader its batches; `kind` to `text` as in `BatchFunction`."""

    kind: str
    name: str
    file: str
    line: int
    text: str
    share: float
    """Of the loop's time."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A change that was considered and is not advised."""

    id: str
    what: str
    """The change in a few words: ``more workers``."""
    why: str
    """Why it would not help."""


@dataclass(frozen=True, slots=True)
class Diagnosis(Shown):
    """What a run means: every view is made from this object."""

    command: tuple[str, ...]
    kind: str
    path: str
    started_at: float
    wall_s: float
    """From the start of the command to the end of its training process, mean over ranks.

    `budget` and `outside` sum to it. For `unstarve ideal`: the measured real steps alone."""
    steps: int
    """Training steps of the main loader, of one rank."""
    warmup_steps: int
    ranks: int
    device: str
    versions: Mapping[str, str]
    cut_short: bool
    """A process did not close its record."""
    live: bool
    exit_code: int | None
    verdict: Verdict
    wait_share: float | None
    """Of the measured time: the host waited for data."""
    stall_share: float | None
    """Of the measured time: the accelerator starved for data, None if unknown; on a CPU the wait share."""
    throughput: Throughput
    step_ms: Spread | None
    """From one delivered batch to the next inside an epoch: the step and its wait."""
    wait_ms: Spread | None
    budget: tuple[Share, ...]
    """Of the measured training steps."""
    headroom: Headroom | None
    overhead: Overhead
    loaders: tuple[LoaderSummary, ...]
    lost: tuple[str, ...]
    outside: tuple[Outside, ...] = ()
    """The rest of the wall time, in the order of time."""
    gpu: GpuSummary | None = None
    copies: CopySummary | None = None
    """Copies to the device; None where none of its steps was looked at."""
    waits: Mapping[Cause, float] = field(default_factory=dict)
    """Seconds of waiting per cause, of the measured part."""
    demand: Demand | None = None
    functions: tuple[FunctionCost, ...] = ()
    transforms: tuple[TransformCost, ...] = ()
    """The same time as in `functions`, by transform."""
    slow_samples: tuple[SlowSample, ...] = ()
    unseen_batches: UnseenBatches | None = None
    """Only where no loader was iterated."""
    advice: tuple[Advice, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    health: tuple[Finding, ...] = ()
    """What the run shows to be wrong, the worst first."""
    system: Mapping[str, Any] = field(default_factory=dict)
    """``cores``, ``quota_cores``, ``filesystems``, …: the machine as the training process saw it."""
    typical: tuple[Lane, ...] = ()
    """A few typical steps of the rank that waited the most; seconds count from their beginning."""
    whatif: WhatIf | None = None
    """Forecasts for other numbers of workers; None when the loader cannot be modelled."""
    forecaster: Forecaster | None = field(default=None, repr=False, compare=False)
    """Predicts the gains of advice; None when the loader cannot be modelled."""
    memory: MemorySummary | None = None
    """Of the rank that waited the most; None when not recorded, as in older runs."""
    profile: Profile | None = None
    """What a profiler said; of an imported file, everything that is known."""
    failure: str | None = None
    """The line that says why the command failed; None when it did not, or the reason is not known."""
    io: ReadSummary | None = None
    """How loading read its files; None without `--io`."""
    perf: ProcessorSummary | None = None
    """The processor's counters; None without `--perf`."""
    rank_times: RankSummary | None = None
    """Who makes the others wait; None with one rank, or too few steps in common."""
    walk: tuple[str, ...] = ()
    """The questions people ask one after another, with this run's answers."""
