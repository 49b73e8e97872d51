"""What the driver of a device says about it now and then."""

from __future__ import annotations

from typing import NamedTuple


class Reading(NamedTuple):
    """One entry of the driver's own record of a device; it includes the work of other processes."""

    device: int
    at_ns: int
    utilization: float | None
    """Share of the time since the previous entry in which any kernel ran."""
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    shared: bool
    """Other processes use the device, too."""


class Engines(NamedTuple):
    """What the driver said of a device at one moment, beside kernels and memory; None where it cannot say."""

    device: int
    at_ns: int
    power_mw: int | None
    received_bytes_per_s: int | None
    """Over PCI Express: from host memory, or from another device."""
    sent_bytes_per_s: int | None
    jpeg_share: float | None
    """Share of the time in which the engines that decode JPEGs were at work."""
