"""A run as it looks while it is being recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from unstarve.model.causes import Cause, State
from unstarve.model.chart_data import Doing
from unstarve.model.recorded import Run


class RunState(StrEnum):
    """The state of a recording."""

    RUNNING = "running"
    FINISHED = "finished"
    DIED = "died"
    """unstarve ended before the command did: nothing more will be written."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The last seconds of a run's events, and counts since its beginning."""

    run: Run
    """Its processes hold only recent events; ended workers are left out."""
    delivered: Mapping[tuple[str, int], Mapping[int, int]]
    """Batches so far per training process (host, pid) and loader, without nested ones."""
    window_s: float
    """How far back the events reach at most."""
    silent_s: float | None
    """Seconds since the last write; None if nothing was written."""


@dataclass(frozen=True, slots=True)
class WorkerNow:
    """What one worker process does. Shares are of the last seconds."""

    place: int
    """Number among its loader's workers, from 0."""
    pid: int
    doing: Doing | None
    """What it mostly did in the last second: ``fetch``, ``collate``, ``send``, or ``wait`` for work.

    None if it has reported nothing."""
    since_s: float | None
    """How long it has been doing that; None if it changes several times a second."""
    waits_for: Cause | None
    """Main cause of the time it takes to make batches: ``cpu``, ``disk``, ``remote``, ``contention``, …"""
    busy_share: float | None
    parts: Mapping[Cause, float]
    """Share of its time per cause; the rest up to 1 it was idle."""
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
    """Position of its newest batch inside the epoch, from 0."""
    steps: int
    """Batches so far."""
    steps_per_s: float | None
    samples_per_s: float | None
    wait_share: float | None
    """Share of the training thread's time spent waiting for this loader."""
    queue_depth: float | None
    """Mean number of batches ready when one was asked for."""
    queue_room: int | None
    """Most batches that the workers prefetch."""
    parts: Mapping[Cause, float]
    """Share per cause of the time to make its batches; they sum to 1, or there are none."""
    workers: tuple[WorkerNow, ...]


@dataclass(frozen=True, slots=True)
class MemoryNow:
    """Memory of a training and its workers; sums leave out unknown parts."""

    main_bytes: int | None = None
    """Resident memory of the training processes."""
    workers_bytes: int | None = None
    """Resident memory of all workers; shared pages are counted in each."""
    shm_bytes: int | None = None
    """In use in /dev/shm, by anyone on the machine (or in the container)."""
    shm_total_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class TrainerNow:
    """One training process: a rank, or the only one."""

    rank: int | None
    host: str
    pid: int
    device: str
    doing: Doing | None
    """``wait`` or ``step``: the current one if it lasts, else the one that took more of the last seconds."""
    since_s: float | None
    """How long it has been doing that, if longer than a moment."""
    main: int
    """Index in `loaders` of the one in use now."""
    wait_share: float | None
    """The host's."""
    stall_share: float | None
    """The accelerator's, None if unknown; on a CPU the wait share."""
    loaders: tuple[LoaderNow, ...]
    memory: MemoryNow

    @property
    def loader(self) -> LoaderNow:
        """The loader in use now."""
        return self.loaders[self.main]


@dataclass(frozen=True, slots=True)
class Live:
    """A run now. Numbers are about the last seconds; None also if there is too little data."""

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
    """Of the loader in use, in the rank that waits the most; so are the shares."""
    memory: MemoryNow
    silent_s: float | None = None
    """Seconds since the last write; about one is usual."""
    looks: State | None = None
    """The verdict's state for the last seconds alone; None instead of inconclusive."""
    trainers: tuple[TrainerNow, ...] = field(default_factory=tuple)
    """By rank; empty until the first batch is delivered."""
