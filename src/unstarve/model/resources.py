"""Accelerators and memory over a run, as concluded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class GpuSummary:
    """The accelerators over the measured part of a run; the mean if there are several."""

    stall_share: float | None
    """Idle while training waited for data."""
    idle_share: float | None
    """Idle for any reason; gaps of a few microseconds between kernels do not count."""
    host_late_share: float | None
    """Idle although data was there: the training loop had not given the device anything to do."""
    utilization: float | None
    """Share of the time in which any kernel ran, by the driver; includes kernels of other processes."""
    memory_used_bytes: int | None
    """Peak of the fullest device, whoever used it."""
    memory_total_bytes: int | None
    """Of that device."""
    devices: int
    """Number of devices over all ranks."""
    allocated_peak_bytes: int | None = None
    """Most bytes of tensors at once on one device, as torch's allocator counts them."""
    reserved_peak_bytes: int | None = None
    """Most bytes that the allocator held at once there: tensors, and memory it keeps for later ones."""
    power_w: float | None = None
    """What a device draws, by its driver, which is asked every few seconds; as the next three, a mean."""
    received_bytes_per_s: float | None = None
    """What a device receives over PCI Express: batches, for example."""
    sent_bytes_per_s: float | None = None
    jpeg_engine_share: float | None = None
    """Share of the time in which the engines that decode JPEGs were at work."""


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """One quantity over time; unknown points are left out."""

    name: str
    """``training`` and ``workers`` (resident), ``/dev/shm``; ``training PSS``, ``training USS``, … as in
    `MemoryLook`."""
    at_s: tuple[float, ...]
    """Since the first event, as in every chart of the run."""
    bytes: tuple[int, ...]


class Trend(NamedTuple):
    """How a quantity grows over time."""

    per_s: float
    low: float
    """The lower end of the 95 % interval of `per_s`."""
    high: float
    grown: float
    """From the first point to the last."""
    last: float
    lasting: bool
    """It grew for as long as it was watched, and has not slowed down much."""
    per_batch: float | None = None
    """The slope itself, where batches were counted: those that a worker made, or that training received."""


@dataclass(frozen=True, slots=True)
class MemoryGrowth:
    """A quantity that has grown for as long as it was watched."""

    who: str
    """``training`` or ``workers``."""
    what: str
    """``allocated``: new memory; ``copied``: pages that a forked worker wrote to, by counting references for
    example; ``/dev/shm``; ``descriptors``."""
    per_s: float
    """Bytes, or descriptors; of one worker, the median."""
    low: float
    """Ends of the 95 % interval of `per_s`."""
    high: float
    grown: float
    per_batch: float | None
    """For each batch that training received, or that the worker made."""


@dataclass(frozen=True, slots=True)
class DescriptorUse:
    """Open file descriptors of the process that has most of them."""

    peak: int
    limit: int | None
    """How many a process may open."""
    at_s: tuple[float, ...]
    """Since the first event."""
    counts: tuple[int, ...]
    """Of the training process."""


@dataclass(frozen=True, slots=True)
class MemoryPressure:
    """How short of memory the machine was during the run; None for what it does not count."""

    waiting_share: float | None
    """Largest share of ten seconds in which some process waited for memory."""
    refaulted_bytes: int | None
    """File pages that the page cache had dropped and that were read again, by anyone."""
    major_faults: int | None
    """Page faults of training and workers that had to read from storage."""


@dataclass(frozen=True, slots=True)
class MemorySummary:
    """Resident memory of a training and its workers on one machine; with several machines, of the rank shown.

    Memory that a forked worker shares with its parent is counted in both.
    """

    training_peak_bytes: int | None
    workers_peak_bytes: int | None
    """Of all workers together."""
    shm_peak_bytes: int | None
    """In use in /dev/shm, by anyone."""
    shm_total_bytes: int | None
    lines: tuple[MemoryLine, ...]
    training_uss_peak_bytes: int | None = None
    """Memory that no other process shares; this and the next ones are None in old runs."""
    workers_uss_peak_bytes: int | None = None
    training_pss_peak_bytes: int | None = None
    """With its part of shared memory: those of all processes add up to what they really use."""
    workers_pss_peak_bytes: int | None = None
    workers_most: int = 0
    """Workers that lived at the same time."""
    descriptors: DescriptorUse | None = None
    pressure: MemoryPressure | None = None
    growth: tuple[MemoryGrowth, ...] = ()
    """Only what grew to the end."""
