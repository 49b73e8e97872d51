"""Data for the charts of a run: who did what when (seconds since the first event), and its steps in order."""

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
    """What a thread, worker or device does during a span."""

    START = "start"
    """Main: creating an iterator, or waiting for an epoch's first batch."""
    END = "end"
    """Main: asking for a batch when none is left; workers are shut down."""
    WAIT = "wait"
    """Main: waiting for any later batch."""
    STEP = "step"
    """Main: working on a batch."""
    BETWEEN = "between"
    """Main: outside every epoch."""
    FETCH = "fetch"
    """Worker: fetching the samples."""
    COLLATE = "collate"
    """Worker: building the batch."""
    SEND = "send"
    """Worker: sending the batch."""
    PIN = "pin"
    """Pin thread: copying into pinned memory."""
    STALL = "stall"
    """Device: nothing to do while training waited."""


class LaneSpan(NamedTuple):
    """A stretch of time in one lane; between spans nothing was done."""

    begin_s: float
    end_s: float
    doing: Doing
    batch: int | None
    """Index into `Views.batches`."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One process, thread or device, in order of time."""

    name: str
    """``main``, ``train worker 0``, …"""
    kind: LaneKind
    spans: tuple[LaneSpan, ...]


class BatchStory(NamedTuple):
    """One delivered batch, as shown when hovering over it."""

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
    """The worker that made it; None if the training process did, or if unknown."""
    ready: int | None
    """Batches that were ready when it was requested."""
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
    """Steps before this do not count for the verdict."""
    wait_ms: Histogram | None
    step_ms: Histogram | None
    before: int = 0
    """Of a long run: batches delivered before those in `batches`, which are its last."""


class StepPoint(NamedTuple):
    """One delivered batch and the step that ended with it; of a long run, the mean of several."""

    got_ns: int
    """When it was delivered, by the process's clock."""
    wait_s: float
    step_s: float | None
    """Since the delivery before it in the same epoch; None for an epoch's first."""
    stall_s: float | None
    """Part of the wait in which the device was idle; on a CPU the wait itself."""
    size: float | None
    ready: int | None
    """Batches that were ready when it was requested."""
    causes: Mapping[Cause, float]
    """Seconds of the wait."""
    number: int = 1
    """Batches that it stands for."""

    @property
    def stall_share(self) -> float | None:
        """Share of the step, at most 1."""
        if self.stall_s is None or not self.step_s:
            return None
        return min(self.stall_s / self.step_s, 1.0)

    @property
    def samples_per_s(self) -> float | None:
        return self.size / self.step_s if self.size is not None and self.step_s else None


@dataclass(frozen=True, slots=True)
class Series:
    """All batches that one loader delivered to the training thread of one process."""

    rank: int | None
    pid: int
    loader: str
    main: bool
    """The loader that sets the pace of training; others are used now and then."""
    clock_offset_ns: int
    """Add to `StepPoint.got_ns` to get nanoseconds since 1970."""
    points: tuple[StepPoint, ...]
    waits: Mapping[Cause, float]
    """Seconds of waiting per cause, over all points."""
    step_s: float
    """Total of all steps of known duration."""
    stall_s: float | None
    """Total during those steps; None when unknown for some of them."""

    @property
    def samples(self) -> int | None:
        """None when the size of a batch is unknown."""
        sizes = [(point.size, point.number) for point in self.points]
        known = [size * number for size, number in sizes if size is not None]
        return round(sum(known)) if len(known) == len(sizes) else None
