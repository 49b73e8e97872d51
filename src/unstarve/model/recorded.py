"""What was recorded: events of the processes of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from unstarve.model.causes import Phase
from unstarve.model.device import Reading, Stall
from unstarve.model.pulse import Pulse

STOPPED_EARLY = "recording stopped early"
"""How the loss begins that a process tells when it could write no more."""


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

    The counters are the fetching thread's; bytes are those of its process. While a thread keeps its core they
    are not read: bytes may be told with a later batch.
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
    helped_ns: int = 0
    """What other threads of its process computed for it meanwhile: a pool's, say."""


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
    """``fetch``: getting samples; ``collate``: building a batch of them; ``step``: working on one."""
    function: str
    file: str
    line: int
    """First line of the function."""
    on_cpu: bool
    torch: bool
    """Inside of torch, or handling tensors."""
    seconds: float


class TransformTime(NamedTuple):
    """What a transform in a known container (torchvision, albumentations) has taken in one process."""

    name: str
    seconds: float
    calls: int


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
    """What of ``iter(loader)`` the sampler took: torch fills the workers' queues in there."""


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
    source: str | None = None
    """The call that made it, as the user wrote it; None where it could not be found."""
    tensors: int | None = None
    """In a batch of a loader without workers; None with workers, and where they are too many to count."""


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
    transforms: tuple[TransformTime, ...] = ()
    system: Mapping[str, Any] = field(default_factory=dict)
    """What the process found out about its machine: cores, quota, file systems, missing counters."""
    stalls: tuple[Stall, ...] = ()
    readings: tuple[Reading, ...] = ()
    pulses: tuple[Pulse, ...] = ()
    """In the order of time; none where nothing could be sampled, or of a run from before there were any."""


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
    damaged: bool = False
    """Of the file, something could not be read or made no sense."""
