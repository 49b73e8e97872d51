"""Accelerators and memory over a run, as concluded."""

from __future__ import annotations

from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """One quantity over time; unknown points are left out."""

    name: str
    """``training``, ``workers`` or ``/dev/shm``."""
    at_s: tuple[float, ...]
    """Since the first event, as in every chart of the run."""
    bytes: tuple[int, ...]


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
