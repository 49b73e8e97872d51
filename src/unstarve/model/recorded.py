"""What was recorded: the events of the processes of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from unstarve.model.causes import Phase
from unstarve.model.chart_data import Doing
from unstarve.model.device_copies import StepCopies
from unstarve.model.device_readings import Engines, Reading
from unstarve.model.file_reads import RecordedReads
from unstarve.model.forecasts import MachineTimes
from unstarve.model.loaders import Loader
from unstarve.model.loop_profile import LoopProfile
from unstarve.model.memory_looks import MemoryRecord
from unstarve.model.processor import ProcessorCounts
from unstarve.model.profile import Profile
from unstarve.model.rank_records import FoldedSteps, Meeting
from unstarve.model.sample_counts import DigestedBatch, SampleCount
from unstarve.model.stuck import Breakage
from unstarve.model.thinned import Thinned

STOPPED_EARLY = "recording stopped early"
"""How the loss message of a process begins that could not write any more."""


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
    """Time unstarve itself spent on the batch before this one in the same process, also off the core."""
    phase: Phase = Phase.REAL
    block: int = 0
    """`unstarve ideal` only: number of the block of equal phase, from 1."""
    settling: bool = False
    """`unstarve ideal` only: the block has just begun, so the step says nothing about either phase."""
    task: int | None = None
    """torch's number of the batch inside its epoch: what workers know it by."""
    ready: int | None = None
    """Batches that were ready when this one was asked for."""
    sampler_ns: int = 0
    """Spent in the sampler during this wait."""
    wait_cpu_ns: int = 0
    """CPU time of the training thread during this wait."""
    wait_queued_ns: int | None = None
    """Part of the wait in which the training thread was runnable but had no CPU."""
    step_cpu_ns: int = 0
    """CPU time of the training thread between the batch before and this wait."""
    step_queued_ns: int | None = None
    """Part of that step in which the training thread was runnable but had no CPU."""
    thinned: Thinned | None = None
    """Of a long run: it stands for several that were not kept one by one. Its sizes and times are sums, as if
    the training thread had waited for all of them at once."""

    @property
    def wait_ns(self) -> int:
        return self.got_ns - self.ask_ns

    @property
    def weight(self) -> int:
        """Batches that it stands for."""
        return 1 if self.thinned is None else self.thinned.number

    @property
    def last_ns(self) -> int:
        """When the last of them was delivered."""
        return self.got_ns if self.thinned is None else self.thinned.end_ns


class Work(NamedTuple):
    """Making one batch, in a worker or, without workers, in the training process.

    The counters are those of the fetching thread; bytes are those of its process. They are not read while the
    thread keeps its core, so bytes may appear with a later batch.
    """

    loader: int | None
    """None in a worker, which does not know it."""
    iteration: int
    """How often the loader has started over, as this process sees it."""
    task: int
    samples: int
    received_ns: int
    """When the indices arrived."""
    begin_ns: int
    """When fetching began."""
    collate_ns: int
    """When collating began."""
    done_ns: int
    """When the batch was done."""
    cpu_ns: int
    """CPU time of fetching."""
    system_ns: int
    """Part of `cpu_ns` spent in the kernel."""
    queued_ns: int | None
    """Part of fetching in which the thread was runnable but had no CPU."""
    asked_bytes: int | None
    storage_bytes: int | None
    delay_ns: int | None
    """Part of fetching spent waiting for block I/O; None where the kernel does not count it."""
    major_faults: int
    switches: int
    collate_cpu_ns: int
    collate_system_ns: int
    collate_queued_ns: int | None
    slow_index: int | None
    """Index of the slowest sample of the batch."""
    slow_ns: int
    opens: int
    """Files opened by Python code while fetching."""
    failed: bool
    helped_ns: int = 0
    """CPU time that other threads of its process, such as a pool, spent on it."""
    slow_file: str | None = None
    """The file of its slowest sample, where that stood out and the file is known."""
    weight: int = 1
    """Of a long run: it stands for so many, which were not kept one by one; times and counters are sums."""


class Sent(NamedTuple):
    """A worker's queue turned a finished batch into a message."""

    task: int
    iteration: int
    put_ns: int
    """When the worker put it into the queue."""
    begin_ns: int
    end_ns: int
    cpu_ns: int


class Received(NamedTuple):
    """The training process took a batch out of the workers' queue."""

    loader: int
    epoch: int
    task: int
    arrived_ns: int
    """When the message was there."""
    ready_ns: int
    """When it was unpickled into tensors."""
    pinned_ns: int
    """When the pin thread had copied it to pinned memory; equal to `ready_ns` without one."""


class Crew(NamedTuple):
    """The worker processes that made one epoch's batches."""

    loader: int
    epoch: int
    pids: tuple[int, ...]


class Sampled(NamedTuple):
    """Where a stack sampler found the code of this process."""

    place: str
    """``fetch``: getting samples; ``collate``: building a batch of them; ``step``: working on one."""
    function: str
    """Never one of unstarve's: a fix has its public name, ``unstarve.CachedDataset``."""
    file: str
    """Without a source file: the module."""
    line: int
    """First line of the function; 0 without a source file."""
    on_cpu: bool
    torch: bool
    """Inside torch, or handling tensors."""
    seconds: float


class OwnCost(NamedTuple):
    """CPU time of the recording in one process."""

    steps: int
    """The steps whose recording was measured; the process has recorded more."""
    step_cpu_s: float
    """What they cost together."""
    fetches: int
    fetch_cpu_s: float
    """The same for the batches that this process has made."""
    rest_cpu_s: float
    """Writing and the stack sampler, all of it."""


class TransformTime(NamedTuple):
    """Time spent in a transform of a known container (torchvision, albumentations) in one process."""

    name: str
    seconds: float
    calls: int


class Stall(NamedTuple):
    """One wait of the training thread as one device saw it."""

    loader: int
    epoch: int
    position: int
    device: int
    """torch's number of the device inside the process."""
    ask_ns: int
    got_ns: int
    stall_ns: int
    """The part of the wait in which the device had nothing to do."""

    @property
    def wait_ns(self) -> int:
        return self.got_ns - self.ask_ns


class Backward(NamedTuple):
    """A backward pass began: the first one since a batch was asked for."""

    thread: int
    at_ns: int


class Pulse(NamedTuple):
    """One look at a process, about once a second: what its watched thread does, what it has used, its memory.

    Counters only grow: the difference of two looks is what happened between them.
    """

    at_ns: int
    doing: Doing | None
    """In training ``wait`` or ``step``; in a worker ``wait`` (for indices), ``fetch`` or ``collate``."""
    cpu_ns: int | None
    """CPU time of the watched thread."""
    queued_ns: int | None
    """Time in which it was runnable but had no CPU."""
    storage_bytes: int | None
    """Bytes the process has read from storage."""
    rss_bytes: int | None
    """Resident memory; a forked worker's includes what it still shares with its parent."""
    shared_bytes: int | None
    """Part of that which is file mappings and shared memory."""
    shm_bytes: int | None
    """Bytes in use in the machine's /dev/shm, by anyone; reported by training processes only."""
    shm_total_bytes: int | None


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
    sampler_ns: int = 0
    """Part of ``iter(loader)`` spent in the sampler: torch fills the workers' queues there."""
    no_grad: bool = False
    """A batch was asked for while gradients were off; False in old runs."""


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
    """What unstarve failed to record here, one sentence each."""
    allocated_peak_bytes: int | None = None
    """Most bytes of tensors at once, on the fullest device of the process."""
    reserved_peak_bytes: int | None = None
    """The same of what torch's allocator held."""
    works: tuple[Work, ...] = ()
    sents: tuple[Sent, ...] = ()
    receipts: tuple[Received, ...] = ()
    crews: tuple[Crew, ...] = ()
    sampled: tuple[Sampled, ...] = ()
    transforms: tuple[TransformTime, ...] = ()
    system: Mapping[str, Any] = field(default_factory=dict)
    """What the process found out about its machine: cores, quota, file systems, missing counters."""
    stalls: tuple[Stall, ...] = ()
    readings: tuple[Reading, ...] = ()
    engines: tuple[Engines, ...] = ()
    copies: tuple[StepCopies, ...] = ()
    loop: LoopProfile | None = None
    """What its main thread did; only where no loader was iterated."""
    pulses: tuple[Pulse, ...] = ()
    """In the order of time; empty where nothing could be sampled, and in old runs."""
    own: OwnCost | None = None
    """None in old runs, and where a process was killed early."""
    backwards: tuple[Backward, ...] = ()
    """In the order of time; empty in old runs."""
    meetings: tuple[Meeting, ...] = ()
    """In the order of time; empty without ranks, and in old runs."""
    folded: FoldedSteps | None = None
    """Of a rank whose steps were folded when runs were merged: it then has no batches."""
    attempt: int = 0
    """How often torchrun had restarted the ranks before this process began."""
    draws: bool | None = None
    """Of a worker: whether its first fetches drew random numbers; None when unknown."""
    streams: Mapping[str, int | None] = field(default_factory=dict)
    """Digests of the random state before its first fetch, of the libraries it drew from: ``numpy``, …"""
    samples: tuple[SampleCount, ...] = ()
    digested: tuple[DigestedBatch, ...] = ()
    """Empty without `--ledger`."""
    step_counts: ProcessorCounts | None = None
    """The processor's counters of its steps; None without `--perf`."""
    loading_counts: ProcessorCounts | None = None
    """The same of making batches."""
    memory: MemoryRecord = field(default_factory=MemoryRecord)


@dataclass(frozen=True, slots=True)
class Run:
    """One recorded execution of a command."""

    path: str
    command: tuple[str, ...]
    kind: str
    """``run`` or ``ideal``: the verb that recorded it."""
    started_at: float
    """Seconds since 1970."""
    processes: tuple[Process, ...]
    exit_code: int | None
    """The command's exit code; None if unstarve ended before the command did."""
    live: bool
    """It is being recorded right now."""
    lost: tuple[str, ...]
    """What could not be read or recorded, one sentence each."""
    damaged: bool = False
    """Part of the file could not be read or was invalid."""
    profile: Profile | None = None
    """What a profiler said: an imported file, or the window of `unstarve run --profile`."""
    failure: str | None = None
    """The line that says why the command failed: ``ValueError: …``; None when it is not known."""
    limit: str | None = None
    """The option that was to end the recording, as given: ``--stop-after 100``."""
    reads: RecordedReads | None = None
    """What `--io` counted; None without it."""
    perf_why_not: str | None = None
    """Why `--perf` could not count; None if it could, or was not asked to."""
    breakage: Breakage = field(default_factory=Breakage)
    machine: MachineTimes | None = None
    """Measured on the machine that recorded it; None in old runs, and where that failed."""
