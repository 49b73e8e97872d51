"""A run that is being recorded, as it looks now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from unstarve.model.causes import Cause, State
from unstarve.model.chart_data import Doing
from unstarve.model.recorded import Run


class RunState(StrEnum):
    """How far a recording is."""

    RUNNING = "running"
    FINISHED = "finished"
    DIED = "died"
    """unstarve was ended before the command was: nobody will write more."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The last seconds of a run's events, and what had to be counted from its beginning."""

    run: Run
    """Its processes hold recent events only; workers that are gone are left out."""
    delivered: Mapping[tuple[str, int], Mapping[int, int]]
    """Per training process (host, pid) and loader: batches so far, nested ones not counted."""
    window_s: float
    """At most so much of the past is in there."""
    silent_s: float | None
    """Since anything was written; None when nothing was."""


@dataclass(frozen=True, slots=True)
class WorkerNow:
    """What one worker process does. Shares are of the last seconds."""

    place: int
    """In its loader's crew, from 0."""
    pid: int
    doing: Doing | None
    """What it mostly did in the last second: ``fetch``, ``collate``, ``send``; ``wait``: nothing to do.

    None when nothing was heard of it."""
    since_s: float | None
    """For how long already; None when it does several things a second."""
    waits_for: Cause | None
    """What making batches takes it most: ``cpu``, ``disk``, ``remote``, ``contention``, …"""
    busy_share: float | None
    parts: Mapping[Cause, float]
    """Share of its time per cause; what is missing to 1, it had nothing to do."""
    batches_per_s: float | None
    rss_bytes: int | None


@dataclass(frozen=True, slots=True)
class LoaderNow:
    """One loader of one training process."""

    id: int
    name: str
    where: str
    epoch: int | None
    position: int | None
    """Inside the epoch, of its newest batch, from 0."""
    steps: int
    """Batches so far."""
    steps_per_s: float | None
    samples_per_s: float | None
    wait_share: float | None
    """Share of the training thread's time spent waiting for this loader."""
    queue_depth: float | None
    """Batches that lay ready when one was asked for, on average."""
    queue_room: int | None
    """Most that the workers prefetch."""
    parts: Mapping[Cause, float]
    """What making its batches takes; the shares sum to 1, or there are none."""
    workers: tuple[WorkerNow, ...]


@dataclass(frozen=True, slots=True)
class MemoryNow:
    """Memory of a training and its workers; a sum leaves out what is not known."""

    main_bytes: int | None = None
    """Resident memory of the training processes."""
    workers_bytes: int | None = None
    """Resident memory of the workers together; pages that they share are counted in each."""
    shm_bytes: int | None = None
    """In use in /dev/shm, by anybody on the machine (or in the container)."""
    shm_total_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class TrainerNow:
    """One training process: a rank, or the only one."""

    rank: int | None
    host: str
    pid: int
    device: str
    doing: Doing | None
    """``wait`` or ``step``, whichever took more of the last seconds, or lasts now."""
    since_s: float | None
    """For how long already, when that is longer than a moment."""
    main: int
    """Place in `loaders` of the one that trains now."""
    wait_share: float | None
    stall_share: float | None
    loaders: tuple[LoaderNow, ...]
    memory: MemoryNow

    @property
    def loader(self) -> LoaderNow:
        """The one that trains now."""
        return self.loaders[self.main]


@dataclass(frozen=True, slots=True)
class Live:
    """A run now. Numbers are about the last seconds; None, also when too little was seen of them."""

    path: str
    command: tuple[str, ...]
    state: RunState
    exit_code: int | None
    started_at: float
    """Seconds since 1970."""
    elapsed_s: float
    window_s: float
    steps: int
    """So far, of one rank."""
    steps_per_s: float | None
    """Of one rank."""
    samples_per_s: float | None
    """Of all ranks together."""
    wait_share: float | None
    stall_share: float | None
    queue_depth: float | None
    """Of the loader that trains now, in the rank that waits the most; as are the shares."""
    memory: MemoryNow
    silent_s: float | None = None
    """Since the processes wrote anything: a second or so is usual."""
    looks: State | None = None
    """What a verdict on the last seconds alone would be; never inconclusive, but None."""
    trainers: tuple[TrainerNow, ...] = field(default_factory=tuple)
    """By rank; none until the first batch was delivered."""
