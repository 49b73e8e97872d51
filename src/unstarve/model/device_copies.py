"""Copies from the host to a device, as a recording sees them in a few steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class StepCopies(NamedTuple):
    """Copies of one kind to one device, in one step whose copies were timed; 0 `copies`: it had none."""

    loader: int
    epoch: int
    position: int
    begin_ns: int
    """The step's batch was there."""
    end_ns: int
    """The next batch was asked for."""
    device: int
    copies: int
    nbytes: int
    device_ns: int
    """On the device's clock."""
    host_ns: int
    """Spent in the calls that copy."""
    pinned: bool
    """From page-locked memory."""
    non_blocking: bool
    beside: bool
    """On another stream than training's."""


@dataclass(frozen=True, slots=True)
class CopyKind:
    """The copies of one kind in all steps whose copies were timed."""

    device: int
    memory: str
    """Of the host: ``pageable`` or ``pinned``."""
    blocking: bool
    """The host waited for them: pageable memory, or no ``non_blocking=True``."""
    overlapped: bool
    """On another stream than training's; otherwise on the critical path."""
    copies: int
    bytes: int
    seconds: float
    """On the device's clock."""
    host_s: float
    """The training thread spent in the calls."""


@dataclass(frozen=True, slots=True)
class CopySummary:
    """Copies to the devices of a training."""

    steps: int
    """Measured steps whose copies were timed: a small part of all."""
    share: float
    """Of the measured time: copies on the critical path of the device that has the most of them."""
    kinds: tuple[CopyKind, ...] = ()
    """Longest first; empty if no step copied anything."""
