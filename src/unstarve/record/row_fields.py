"""What a row of each kind says: the order, type, unit and meaning of its fields, declared once.

The kinds themselves, and how rows lie in a file, are in `format`.
"""

# Annotations are evaluated here (no `from __future__ import annotations`): the layouts are made from them.
from typing import Annotated, NamedTuple

# The types of fields. In a signed field, -1 means unknown.
U16 = Annotated[int, "H"]
U32 = Annotated[int, "I"]
I32 = Annotated[int, "i"]
U64 = Annotated[int, "Q"]
I64 = Annotated[int, "q"]
Text32 = Annotated[bytes, "32s"]
"""UTF-8, cut to fit, padded with NUL."""


class BatchRow(NamedTuple):
    """The training process received a batch. Written for every step."""

    loader: U16
    """Number of the loader inside its process."""
    flags: U16
    """`NESTED`, `REPLAY`, `SETTLING`."""
    epoch: U32
    position: U32
    """Inside the epoch, from 0."""
    thread: U32
    """0 for the main thread; any other thread has its own number."""
    size: I32
    """Samples in the batch."""
    nbytes: I64
    """Bytes of its tensors and arrays."""
    ask_ns: U64
    """When ``next()`` was called."""
    got_ns: U64
    """When it returned."""
    own_ns: U32
    """Time unstarve itself spent since the batch before, also off the core."""
    block: U32
    """`unstarve ideal` only: number of the block of equal phase, from 1."""
    task: I32
    """torch's number of the batch inside its epoch."""
    ready: I32
    """Batches that were ready when this one was asked for."""
    sampler_ns: U64
    """Spent in the sampler during the wait."""
    wait_cpu_ns: U64
    """CPU time of the training thread during the wait."""
    wait_queued_ns: I64
    """Part of the wait in which the training thread was runnable but had no CPU."""
    step_cpu_ns: U64
    """CPU time of the training thread between the batch before and this wait."""
    step_queued_ns: I64
    """Part of that step in which the training thread was runnable but had no CPU."""


class EpochBeginRow(NamedTuple):
    """``iter(loader)`` returned."""

    loader: U16
    flags: U16
    """`NESTED`."""
    epoch: U32
    thread: U32
    begin_ns: U64
    """When ``iter()`` was called."""
    ready_ns: U64
    """When it returned."""


class EpochSamplerRow(NamedTuple):
    """The sampler ran inside ``iter(loader)``. Left out if it did not."""

    loader: U16
    flags: U16
    """`NESTED`."""
    epoch: U32
    sampler_ns: U64
    """Spent in the sampler between `begin_ns` and `ready_ns` of the epoch."""


class EpochNoGradRow(NamedTuple):
    """A batch of the epoch was asked for while gradients were off. Left out if they were on throughout."""

    loader: U16
    flags: U16
    """`NESTED`."""
    epoch: U32


class EpochEndRow(NamedTuple):
    """``next()`` returned no batch: the loader was exhausted or raised."""

    loader: U16
    flags: U16
    epoch: U32
    ask_ns: U64
    """When that ``next()`` was called."""
    end_ns: U64
    """When it raised."""
    error: Text32
    """Type of the exception; empty if the loader was exhausted."""


class StallRow(NamedTuple):
    """The device's side of one wait. Written some steps later, when the device has got that far."""

    loader: U16
    wait: U16
    """`BATCH_WAIT`, `BEGIN_WAIT` or `END_WAIT`."""
    epoch: U32
    position: U32
    device: U16
    flags: U16
    ask_ns: U64
    got_ns: U64
    stall_ns: U64
    """Part of the wait in which the device had nothing to do."""


class CopyRow(NamedTuple):
    """Copies of one kind to a device, in one of the few steps whose copies are timed.

    A step without any has one row that says 0 copies.
    """

    loader: U16
    flags: U16
    """`PINNED`, `NON_BLOCKING`, `BESIDE`."""
    epoch: U32
    position: U32
    """Of the step's batch."""
    device: U16
    copies: U32
    nbytes: U64
    begin_ns: U64
    """When the step's batch was there."""
    end_ns: U64
    """When the next batch was asked for."""
    device_ns: U64
    """From the beginning to the end of the copies, on the device's clock."""
    host_ns: U64
    """Spent in the calls that copy."""


class GaugeRow(NamedTuple):
    """What the driver says about a device."""

    device: U16
    flags: U16
    """`SHARED`."""
    at_ns: U64
    percent: I32
    """Utilization since the row before."""
    used_bytes: I64
    """Device memory in use."""
    total_bytes: I64
    """Device memory in all."""


class EnginesRow(NamedTuple):
    """What the driver says about a device beside its kernels, every few seconds; -1 where it cannot say."""

    device: U16
    flags: U16
    at_ns: U64
    power_mw: I64
    received_bytes_per_s: I64
    """Over PCI Express: from host memory, for example."""
    sent_bytes_per_s: I64
    jpeg_percent: I32
    """Utilization of the engines that decode JPEGs."""


class PulseRow(NamedTuple):
    """What a process was doing. About one per second and process."""

    doing: U16
    """0 unknown, else the place in `PULSE_DOING`, from 1."""
    flags: U16
    at_ns: U64
    cpu_ns: I64
    """CPU time of the watched thread since it began."""
    queued_ns: I64
    """Time since it began in which the watched thread was runnable but had no CPU."""
    storage_bytes: I64
    """Bytes the process has read from storage."""
    rss_bytes: I64
    """Resident memory of the process."""
    shared_bytes: I64
    """Part of `rss_bytes` that is shared memory or files."""
    shm_bytes: I64
    """Bytes in use in the machine's /dev/shm; told by training processes only."""
    shm_total_bytes: I64
    """Size of /dev/shm."""


class MemoryRow(NamedTuple):
    """The memory of a process, every few seconds; see `MemoryLook`. `pressure`: hundredths of a percent."""

    at_ns: U64
    uss_bytes: I64
    pss_bytes: I64
    anonymous_bytes: I64
    dirty_bytes: I64
    blocks: I64
    descriptors: I64
    descriptor_limit: I64
    major_faults: I64
    shm_bytes: I64
    pressure: I32
    refaulted_bytes: I64


class WorkRow(NamedTuple):
    """A batch was made, by a worker or by the training process itself.

    The counters up to `switches` are those of fetching.
    """

    loader: U16
    """`NO_LOADER` in a worker."""
    flags: U16
    """`FAILED`."""
    iteration: U32
    """How often the loader has started over, as this process sees it."""
    task: U32
    samples: U32
    received_ns: U64
    """When the indices arrived."""
    begin_ns: U64
    """When fetching began."""
    collate_ns: U64
    """When collating began; equal to `done_ns` without it."""
    done_ns: U64
    cpu_ns: I64
    system_ns: I64
    """Part of `cpu_ns` spent in the kernel."""
    queued_ns: I64
    """Runnable but without a CPU."""
    asked_bytes: I64
    """Bytes asked for by ``read`` calls of the process."""
    storage_bytes: I64
    """Bytes the process read from storage."""
    delay_ns: I64
    """Waiting for block I/O."""
    major_faults: I64
    switches: I64
    """How often the thread left its core."""
    collate_cpu_ns: I64
    collate_system_ns: I64
    collate_queued_ns: I64
    slow_index: I64
    """Index of the slowest sample."""
    slow_ns: I64
    """Time the slowest sample took."""
    opens: U32
    """Files opened by Python code while fetching."""


class SentRow(NamedTuple):
    """A worker turned a finished batch into a message."""

    task: U32
    iteration: U32
    put_ns: U64
    """When the worker put the batch into its queue."""
    begin_ns: U64
    """When pickling began."""
    end_ns: U64
    """When pickling was done."""
    cpu_ns: I64
    """CPU time of pickling."""


class ReceivedRow(NamedTuple):
    """The training process took a batch out of the workers' queue."""

    loader: U16
    flags: U16
    epoch: U32
    task: U32
    arrived_ns: U64
    """When the message was there."""
    ready_ns: U64
    """When it was unpickled."""
    pinned_ns: U64
    """When it was in pinned memory; equal to `ready_ns` without a pin thread."""


class HelpedRow(NamedTuple):
    """Other threads of the process computed while a batch was made. Written only where it is much."""

    task: U32
    iteration: U32
    cpu_ns: U64
    """CPU time of those threads, without the one that sends batches."""
    loader: U16


class BackwardRow(NamedTuple):
    """A backward pass began. Written for the first one of a thread between two requests for a batch."""

    thread: U32
    """As in `BatchRow`."""
    at_ns: U64


class MeetingRow(NamedTuple):
    """A rank's training thread was blocked in collectives, or ran a backward pass, since the batch before.

    Written when a batch is asked for, by ranks of a training only. A moment is 0 for what did not happen.
    """

    calls: U32
    """Calls that blocked."""
    begin_ns: U64
    """The first backward pass began."""
    end_ns: U64
    """The last backward pass ended."""
    before_ns: U64
    """Blocked before the first backward pass, or in a step without one."""
    within_ns: U64
    """Blocked in backward passes."""
    after_ns: U64
    """Blocked after the last one."""
    left_ns: U64
    """When the last such call returned."""
    at_ns: U64
    """When the next batch was asked for."""


class WindowRow(NamedTuple):
    """Steps of a rank, folded together when runs were merged; times in microseconds.

    The fields are those of `model.FoldedSteps`.
    """

    epochs: U32
    positions: U32
    steps: U32
    after_us: U32
    data_us: U32
    forward_us: U32
    backward_us: U32
    blocked_us: U32
    queued_us: U32
    least_us: U32
    nbytes: U32


class CountRow(NamedTuple):
    """What a `THINNED` row stands for. The row's own times are sums: one wait as long as all of them."""

    kind: U16
    """`BATCH` or `WORK`: the kind of the row."""
    flags: U16
    """`NESTED`."""
    loader: U16
    epoch: U32
    """Of a `WorkRow`: its iteration."""
    position: U32
    """Of the first batch; of a `WorkRow`: the first task."""
    number: U32
    """Batches that the row stands for."""
    samples: I64
    """In all of them."""
    end_ns: U64
    """When the last of them was delivered."""
    steps: U32
    """Steps that ended with one of them, each from one delivery to the next."""
    step_ns: U64
    """All of these steps."""
    backwards: U32
    """Backward passes in them."""


class BucketRow(NamedTuple):
    """One bar of a histogram of the waits or steps behind a `THINNED` row of batches."""

    measure: U16
    """`WAITS` or `STEPS`."""
    loader: U16
    epoch: U32
    position: U32
    """As in the row."""
    bucket: U32
    """Durations from `model.thinned.GROWTH` ** bucket nanoseconds on, up to the next power."""
    number: U32
    """Of these durations."""
