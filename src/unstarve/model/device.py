"""What the accelerator did while training waited, as recorded and as concluded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Stall(NamedTuple):
    """One wait of the training thread as one device saw it."""

    loader: int
    epoch: int
    position: int
    device: int
    """torch's number of it, inside the process."""
    ask_ns: int
    got_ns: int
    stall_ns: int
    """The part of the wait in which the device had nothing to do."""

    @property
    def wait_ns(self) -> int:
        return self.got_ns - self.ask_ns


class Reading(NamedTuple):
    """One entry of the driver's own record of a device; other processes' work is in it too."""

    device: int
    at_ns: int
    utilization: float | None
    """Share of the time since the entry before in which any kernel ran."""
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    shared: bool
    """Other processes work on the device too."""


@dataclass(frozen=True, slots=True)
class GpuSummary:
    """The devices over the measured part of a run; over several of them, the mean."""

    stall_share: float | None
    """Idle, and training was waiting for data."""
    idle_share: float | None
    """Idle for any reason; gaps of some microseconds between two kernels do not count."""
    host_late_share: float | None
    """Idle, and data was there: the training loop's own code had not given the device anything to do."""
    utilization: float | None
    """Share of the time in which any kernel ran, by the driver; includes other processes' kernels."""
    memory_used_bytes: int | None
    """Most that was in use on the fullest device, by anybody."""
    memory_total_bytes: int | None
    """Of that device."""
    devices: int
    """How many, over all ranks."""
