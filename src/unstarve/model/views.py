"""What charts of a run are drawn from: who did what when, step by step. Seconds since the first event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from unstarve.model.causes import Cause


class LaneKind(StrEnum):
    """Whose time a lane shows."""

    MAIN = "main"
    WORKER = "worker"
    PIN = "pin"
    DEVICE = "device"


class Doing(StrEnum):
    """What somebody does during a span."""

    START = "start"
    """Main: making an iterator, or waiting for an epoch's first batch."""
    END = "end"
    """Main: asking for a batch when there is none left; the workers are taken down."""
    WAIT = "wait"
    """Main: waiting for any later batch."""
    STEP = "step"
    """Main: working on a batch."""
    BETWEEN = "between"
    """Main: outside of every epoch."""
    FETCH = "fetch"
    """Worker: getting the samples."""
    COLLATE = "collate"
    """Worker: building the batch."""
    SEND = "send"
    """Worker: turning the batch into a message."""
    PIN = "pin"
    """Pin thread: copying into pinned memory."""
    STALL = "stall"
    """Device: nothing to do while training waited."""


class LaneSpan(NamedTuple):
    """A stretch of time in one lane; where nothing is said, nothing was done."""

    begin_s: float
    end_s: float
    doing: Doing
    batch: int | None
    """Which of `Views.batches` it is about."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One process or thread or device, in the order of time."""

    name: str
    """``main``, ``train worker 0``, …"""
    kind: LaneKind
    spans: tuple[LaneSpan, ...]


class BatchStory(NamedTuple):
    """One delivered batch, as a hovering reader wants to know it."""

    loader: str
    epoch: int
    position: int
    ask_s: float
    got_s: float
    step_s: float | None
    """From this delivery to the next of the same epoch; None for the last."""
    causes: Mapping[Cause, float]
    """Seconds of its wait."""
    worker: int | None
    """Which worker made it; None where the training process did, or nobody knows."""
    ready: int | None
    """Batches that lay ready when it was asked for."""
    size: int | None


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many batches fell between two neighbouring edges.

    Edges grow by a constant factor; the first and the last bin may be wider, for a few values far off.
    """

    edges_ms: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EpochBorder:
    """Where an epoch of a loader began."""

    loader: str
    epoch: int
    begin_s: float


@dataclass(frozen=True, slots=True)
class Views:
    """One training process: of several ranks, the one that waited the most."""

    rank: int | None
    lanes: tuple[Lane, ...]
    batches: tuple[BatchStory, ...]
    epochs: tuple[EpochBorder, ...]
    warmup_end_s: float
    """Before this, nothing counts for the verdict."""
    wait_ms: Histogram | None
    step_ms: Histogram | None
