"""The nouns every stage shares: frozen data, standard library only.

``collect`` makes events, ``record`` stores them and gives a `Run` back, ``analyze`` turns a `Run`
into a `Diagnosis`, ``present`` shows it. All times named ``…_ns`` are readings of one monotonic clock
per machine; all named ``…_s`` and ``…_ms`` are durations; a ``share`` lies between 0 and 1.
``None`` always means *not known*, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple


class Cause(StrEnum):
    """Where time can go: the closed list that code, JSON, pages and docs share."""

    COMPUTE = "compute"
    HOST = "host"
    DISK = "disk"
    REMOTE = "remote"
    CPU = "cpu"
    COLLATE = "collate"
    HANDOFF = "handoff"
    PIN = "pin"
    COPY = "copy"
    SAMPLER = "sampler"
    STARTUP = "startup"
    ORDER = "order"
    CONTENTION = "contention"
    UNKNOWN = "unknown"


class State(StrEnum):
    """How a training stands with its data."""

    STARVED = "starved"
    TIGHT = "tight"
    FED = "fed"
    INCONCLUSIVE = "inconclusive"


class Phase(StrEnum):
    """Whether a batch was really loaded or replayed from memory (`unstarve ideal`)."""

    REAL = "real"
    REPLAY = "replay"


# --- what was recorded ------------------------------------------------------------------------------


class Batch(NamedTuple):
    """One batch delivered to the training process."""

    loader: int
    """Number of the loader inside its process."""
    epoch: int
    position: int
    """Inside the epoch, from 0."""
    ask_ns: int
    """When ``next()`` was called."""
    got_ns: int
    """When it returned the batch."""
    size: int | None
    """Samples in the batch."""
    nbytes: int | None
    """Bytes of its tensors and arrays."""
    nested: bool
    """Asked for while another loader's ``next()`` was running in the same thread."""
    thread: int
    """0 for the main thread; any other thread has its own number."""
    own_ns: int
    """unstarve's own time for the batch before this one in the same process."""
    phase: Phase = Phase.REAL
    block: int = 0
    """`unstarve ideal` only: number of the block of equal phase, from 1."""
    settling: bool = False
    """`unstarve ideal` only: the block has just begun; the step tells nothing about either phase."""
    task: int | None = None
    """torch's number of the batch inside its epoch: what workers know it by."""
    ready: int | None = None
    """Batches that lay ready when this one was asked for."""
    sampler_ns: int = 0
    """Spent in the sampler inside this wait."""
    wait_cpu_ns: int = 0
    """CPU time of the training thread inside this wait."""
    wait_queued_ns: int | None = None
    """Of the wait, the training thread was runnable but had no CPU."""
    step_cpu_ns: int = 0
    """CPU time of the training thread between the batch before and this wait."""
    step_queued_ns: int | None = None

    @property
    def wait_ns(self) -> int:
        return self.got_ns - self.ask_ns


class Work(NamedTuple):
    """Making one batch, in a worker or, without workers, in the training process.

    The counters are the fetching thread's; bytes are those of its process.
    """

    loader: int | None
    """None in a worker, which does not know it."""
    iteration: int
    """How often the loader had started over, as this process saw it."""
    task: int
    samples: int
    received_ns: int
    """The indices arrived."""
    begin_ns: int
    """Fetching began …"""
    collate_ns: int
    """… collating began …"""
    done_ns: int
    """… and was done."""
    cpu_ns: int
    """Of fetching: on a CPU."""
    system_ns: int
    """Of `cpu_ns`: inside the kernel."""
    queued_ns: int | None
    """Of fetching: runnable, but without a CPU."""
    asked_bytes: int | None
    storage_bytes: int | None
    delay_ns: int | None
    """Of fetching: waiting for block I/O; None where the kernel does not count it."""
    major_faults: int
    switches: int
    collate_cpu_ns: int
    collate_system_ns: int
    collate_queued_ns: int | None
    slow_index: int | None
    """The slowest sample of the batch."""
    slow_ns: int
    opens: int
    """Files opened by Python code while fetching."""
    failed: bool


class Sent(NamedTuple):
    """A worker's queue turned a finished batch into a message."""

    task: int
    iteration: int
    put_ns: int
    """The worker put it into the queue."""
    begin_ns: int
    end_ns: int
    cpu_ns: int


class Received(NamedTuple):
    """The training process took a batch out of the workers' queue."""

    loader: int
    epoch: int
    task: int
    arrived_ns: int
    """The message was there …"""
    ready_ns: int
    """… and had been turned into tensors."""
    pinned_ns: int
    """… and into pinned memory, by the pin thread; equal to `ready_ns` without one."""


class Crew(NamedTuple):
    """The worker processes that made one epoch's batches."""

    loader: int
    epoch: int
    pids: tuple[int, ...]


class Sampled(NamedTuple):
    """Where a stack sampler found the code of this process."""

    place: str
    """``fetch``: making a batch; ``step``: working on one."""
    function: str
    file: str
    line: int
    """First line of the function."""
    on_cpu: bool
    torch: bool
    """Inside of torch, or handling tensors."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Epoch:
    """One iteration over a loader, from ``iter()`` to the end or to where it was abandoned."""

    loader: int
    epoch: int
    begin_ns: int
    """``iter(loader)`` was entered: workers are made from here on."""
    ready_ns: int
    """``iter(loader)`` returned."""
    thread: int
    nested: bool
    last_ask_ns: int | None = None
    """The ``next()`` that found the loader exhausted; None when the epoch was abandoned."""
    end_ns: int | None = None
    error: str | None = None
    """Type of the exception that ended the epoch, if one did."""


@dataclass(frozen=True, slots=True)
class Loader:
    """A loader as the user made it."""

    id: int
    name: str
    """The variable it was assigned to where that could be seen, else ``loader N``."""
    where: str
    """``file:line`` of its creation, or of its first iteration."""
    kind: str
    """Class name."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that matter for speed: ``num_workers``, ``batch_size``, …"""


@dataclass(frozen=True, slots=True)
class Process:
    """Everything one training process recorded."""

    pid: int
    host: str
    rank: int | None
    worker: bool
    """True for a DataLoader worker: what it iterates is part of making a batch, not of training."""
    device: str
    """``cpu``, or the accelerator's name."""
    versions: Mapping[str, str]
    start_ns: int
    clock_offset_ns: int
    """Add to a monotonic reading to get nanoseconds since 1970."""
    loaders: tuple[Loader, ...]
    epochs: tuple[Epoch, ...]
    batches: tuple[Batch, ...]
    end_ns: int | None
    """When the process closed its record; None when it never did (killed, crashed, still running)."""
    stopped: str | None
    """``steps`` or ``stop-after`` when a limit ended the recording."""
    lost: tuple[str, ...]
    """What unstarve failed to record here, in sentences."""
    works: tuple[Work, ...] = ()
    sents: tuple[Sent, ...] = ()
    receipts: tuple[Received, ...] = ()
    crews: tuple[Crew, ...] = ()
    sampled: tuple[Sampled, ...] = ()
    system: Mapping[str, Any] = field(default_factory=dict)
    """What the process found out about its machine: cores, quota, file systems, missing counters."""


@dataclass(frozen=True, slots=True)
class Run:
    """One recorded execution of a command."""

    path: str
    command: tuple[str, ...]
    kind: str
    """``run`` or ``ideal``: what was asked of the command."""
    started_at: float
    """Seconds since 1970."""
    processes: tuple[Process, ...]
    exit_code: int | None
    """The command's exit code; None when unstarve did not live to see it."""
    live: bool
    """unstarve is recording right now."""
    lost: tuple[str, ...]
    """What could not be read or recorded, in sentences."""


# --- what was concluded ------------------------------------------------------------------------------


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


@dataclass(frozen=True, slots=True)
class Diagnosis:
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


# --- logs of a wrapped loader -------------------------------------------------------------------------


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


# --- two runs side by side ----------------------------------------------------------------------------


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
class Comparison:
    """B against A, and whether that passes."""

    a: Diagnosis
    b: Diagnosis
    change: Change | None
    """None when either run is too short."""
    headline: str
    rows: tuple[Row, ...]
    gates: tuple[Gate, ...]
