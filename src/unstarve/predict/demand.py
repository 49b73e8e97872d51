"""A recorded run → what each of its batches demands of whom, on what machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from unstarve.analyze.blame import fetch_cpu_s, split_fetch
from unstarve.analyze.making import Production
from unstarve.analyze.timeline import Timeline
from unstarve.model import Batch, Cause, Process, Run
from unstarve.model import Work as Recorded
from unstarve.predict.epochs import Epochs, epochs_of
from unstarve.predict.parts import NOBODY, Crowd, Work
from unstarve.predict.recorded_machine import Machine, machine_of
from unstarve.predict.seen_batches import Seen, seen_batches, step_late_ns, work_late_ns

FEWEST_BATCHES = 15
"""Below this many measured batches nothing is predicted."""
_MEETING_PLACES = (
    "multiprocessing/synchronize.py",
    "multiprocessing/connection.py",
    "multiprocessing/queues.py",
    "/queue.py",
    "/threading.py",
    "/filelock/_api.py",
    "/portalocker/utils.py",
)
"""Files in which Python code waits for other processes and threads."""
_OFTEN = 0.25
_OWN_READS_BYTES = 16_384
"""Reading counters and queues is reading, too."""
_AROUND_NS = 150_000
"""Of the training thread's CPU time inside a wait: what is not turning a message into tensors."""


@dataclass(frozen=True, slots=True)
class Demands:
    """All that prediction knows about a run."""

    loader: str
    config: Mapping[str, Any]
    """Arguments of the DataLoader."""
    workers: int
    pinned: bool
    """Batches go through the pin thread, which torch makes only where there is an accelerator."""
    works: tuple[Work, ...]
    """Of the measured batches, in order, as the recorded loader made them."""
    samples: float | None
    """In a batch, as the next two are."""
    nbytes: float | None
    tensors: int | None
    memory_s: float
    """Of a batch's CPU time, the kernel's part: shared memory for the batch, fresh memory for its samples."""
    shared_s: float
    """The shared memory's part of that; 0 without workers."""
    read_bytes: float | None
    """Bytes from storage for every time that a fetch was blocked."""
    readers: float
    """Workers that waited for storage at once, as one that waited saw it."""
    period_s: float
    """Measured seconds per batch."""
    wait_share: float
    """Waiting for data, and its accelerator with it."""
    machine: Machine
    epochs: Epochs | None
    """None when the run lies inside of one epoch."""
    waits_together: bool
    """Blocked workers were seen in locks, pipes or queues, which they may share."""
    crowd: Crowd = NOBODY
    """Who else wanted the cores, as `with_crowd` finds out."""

    @property
    def makes_workers(self) -> bool:
        """Every epoch made its workers anew, so that what this costs was measured."""
        return self.workers > 0 and not self.config.get("persistent_workers")


def demands_of(
    run: Run, timeline: Timeline, productions: Mapping[tuple[int, int], Production]
) -> Demands | str:
    """What the main loader's batches demand, or a sentence that says why this cannot be told."""
    process, main = timeline.process, timeline.main
    loader = next((x for x in process.loaders if x.id == main), None)
    if loader is None or "num_workers" not in loader.config:
        kind = "its loader" if loader is None else f"{loader.name} ({loader.kind})"
        return f"{kind} is no torch DataLoader, and how it makes batches is not known"
    made = {epoch: production for (number, epoch), production in productions.items() if number == main}
    seen = seen_batches(timeline, made)
    if len(seen) < FEWEST_BATCHES:
        return (
            f"{len(seen)} measured batches with all their parts are too few, at least {FEWEST_BATCHES} are "
            "needed; let it run longer"
        )
    if timeline.measured_s <= 0:
        return "its measured batches took no time at all"
    workers = max(production.workers for production in made.values())
    machine = machine_of(run, timeline, seen)
    pinned = bool(loader.config.get("pin_memory")) and process.device != "cpu"
    stalls = _stalls(process, main)
    works = _works(seen, workers, machine, pinned, stalls)
    period_s = timeline.measured_s / len(timeline.measured_batches)
    return Demands(
        loader=loader.name,
        config=loader.config,
        workers=workers,
        pinned=pinned,
        works=works,
        samples=_mean([s.batch.size for s in seen]),
        nbytes=_mean([s.batch.nbytes for s in seen]),
        tensors=loader.tensors,
        memory_s=_memory_s([s.made.work for s in seen]),
        shared_s=fmean(s.made.work.collate_system_ns for s in seen) / 1e9 if workers else 0.0,
        read_bytes=_read_bytes(seen),
        readers=_readers(works, workers, period_s),
        period_s=period_s,
        wait_share=timeline.wait_s / timeline.measured_s * _lost_share(seen, stalls),
        machine=machine,
        epochs=epochs_of(timeline, made, machine.slowdown),
        waits_together=_waits_together(run, process),
    )


def _works(
    seen: Sequence[Seen], workers: int, machine: Machine, pinned: bool, stalls: Mapping[tuple[int, int], int]
) -> tuple[Work, ...]:
    take_delay_s, busy_delay_s = _take_delays(seen, machine.slowdown)
    pipe_s = _pipe_s(seen)
    return tuple(
        _with_delivery(
            one, _making(one, stalls, machine.late_share), workers, machine.slowdown, pinned
        )._replace(take_delay_s=take_delay_s + pipe_s, busy_delay_s=busy_delay_s)
        for one in seen
    )


def _making(one: Seen, stalls: Mapping[tuple[int, int], int], late_share: float) -> Work:
    """What it took to make the batch, and the step on it."""
    work = one.made.work
    fetch_s, collate_s = (work.collate_ns - work.begin_ns) / 1e9, (work.done_ns - work.collate_ns) / 1e9
    parts = split_fetch(work)
    cpu_s, collate_cpu_s = fetch_cpu_s(work), min(work.collate_cpu_ns / 1e9, collate_s)
    collate_queued_s = min((work.collate_queued_ns or 0) / 1e9, collate_s - collate_cpu_s)
    elsewhere_s = parts.get(Cause.REMOTE, 0.0) + parts.get(Cause.UNKNOWN, 0.0)
    step_s, step_delay_s = _step(one.batch, one.after)
    return Work(
        cpu_s=cpu_s,
        collate_s=collate_cpu_s,
        blocked_s=elsewhere_s + collate_s - collate_cpu_s - collate_queued_s,
        late_s=late_share * work_late_ns(work) / 1e9,
        disk_s=max(fetch_s - cpu_s - parts[Cause.CONTENTION] - elsewhere_s, 0.0),
        step_s=step_s,
        step_delay_s=step_delay_s + late_share * step_late_ns(one.after) / 1e9,
        ahead_s=(one.after.wait_ns - _stall_ns(one.after, stalls)) / 1e9,
    )


def _with_delivery(one: Seen, work: Work, workers: int, slowdown: float, pinned: bool) -> Work:
    """The same, with what it took to get the batch to the training thread. Waits for a core are taken out."""
    batch, sent, received = one.batch, one.made.sent, one.made.received
    index_s = min(batch.sampler_ns, batch.wait_ns) / 1e9 / slowdown
    take_s = max(batch.wait_cpu_ns / 1e9 - index_s, 0.0)
    if not workers:
        making_ns = one.made.work.done_ns - one.made.work.begin_ns
        around_s = max(batch.wait_ns - making_ns, 0) / 1e9 / slowdown
        return work._replace(index_s=index_s, take_s=max(around_s - index_s, 0.0))
    send_s = sent.cpu_ns / 1e9 if sent is not None else 0.0
    sending_s = (sent.end_ns - one.made.work.done_ns) / 1e9 / slowdown if sent is not None else 0.0
    work = work._replace(
        index_s=index_s, take_s=take_s, send_s=send_s, send_delay_s=max(sending_s - send_s, 0.0)
    )
    if received is None or not pinned:
        return work
    # The pin thread receives; what the training thread does to get the batch from it is as good as its step.
    return work._replace(
        take_s=(received.ready_ns - received.arrived_ns) / 1e9 / slowdown,
        pin_s=(received.pinned_ns - received.ready_ns) / 1e9 / slowdown,
        step_s=work.step_s + take_s,
    )


def _step(batch: Batch, after: Batch) -> tuple[float, float]:
    """Seconds of a step on a core, and of the rest, without those in line for a core."""
    wall_s = (after.ask_ns - batch.got_ns) / 1e9
    queued_s = min((after.step_queued_ns or 0) / 1e9, wall_s)
    cpu_s = min(after.step_cpu_ns / 1e9, wall_s - queued_s)
    return cpu_s, wall_s - queued_s - cpu_s


def _stall_ns(batch: Batch, stalls: Mapping[tuple[int, int], int]) -> int:
    """Of a wait, what kept the accelerator idle by its own clock; all of it where there is none."""
    return min(stalls.get((batch.epoch, batch.position), batch.wait_ns), batch.wait_ns)


def _stalls(process: Process, loader: int) -> dict[tuple[int, int], int]:
    """Per batch, of the device that starved for the longest."""
    found: dict[tuple[int, int], int] = {}
    for stall in process.stalls:
        if stall.loader == loader:
            key = (stall.epoch, stall.position)
            found[key] = max(found.get(key, 0), stall.stall_ns)
    return found


def _lost_share(seen: Sequence[Seen], stalls: Mapping[tuple[int, int], int]) -> float:
    """Part of the waiting in which an accelerator had nothing to do."""
    waited_ns = sum(one.batch.wait_ns for one in seen)
    return sum(_stall_ns(one.batch, stalls) for one in seen) / waited_ns if waited_ns else 1.0


def _take_delays(seen: Sequence[Seen], slowdown: float) -> tuple[float, float]:
    """Seconds that receiving waits for the worker: always, and how much more when that one is busy."""
    delays: dict[bool, list[float]] = {False: [], True: []}
    for one in seen:
        if one.made.received is not None:
            lasted_ns = (one.made.received.ready_ns - one.made.received.arrived_ns) / slowdown
            own_ns = max(one.batch.wait_cpu_ns - one.batch.sampler_ns - _AROUND_NS, 0)
            delays[one.worker_busy].append(lasted_ns - own_ns)
    idle_s = max(median(delays[False]), 0.0) / 1e9 if delays[False] else 0.0
    busy_s = max(fmean(delays[True]), 0.0) / 1e9 if delays[True] else 0.0
    return (min(idle_s, busy_s) if delays[True] else idle_s), max(busy_s - idle_s, 0.0)


def _pipe_s(seen: Sequence[Seen]) -> float:
    """Seconds of a message in the pipe, of those that the training process stood waiting for."""
    found = [
        one.made.received.arrived_ns - max(one.made.sent.end_ns, one.batch.ask_ns)
        for one in seen
        if one.made.sent is not None and one.made.received is not None
    ]
    waited = [ns for ns in found if ns > 0]
    return median(waited) / 1e9 if waited else 0.0


def _memory_s(works: Sequence[Recorded]) -> float:
    """Seconds a batch in which the kernel made memory; where files are read, its part of fetching is theirs.

    Bytes may be told with a later batch: it is their mean that counts.
    """
    asked = fmean(work.asked_bytes or 0 for work in works)
    stored = fmean(work.storage_bytes or 0 for work in works)
    reads = asked > _OWN_READS_BYTES or stored > 0
    return fmean(work.collate_system_ns + (0 if reads else work.system_ns) for work in works) / 1e9


def _read_bytes(seen: Sequence[Seen]) -> float | None:
    stored = sum(s.made.work.storage_bytes or 0 for s in seen)
    blocked = sum(s.made.work.switches for s in seen)
    return stored / blocked if stored and blocked else None


def _readers(works: Sequence[Work], workers: int, period_s: float) -> float:
    if not workers:
        return 1.0
    share = fmean(work.disk_s for work in works) / (workers * period_s)
    return 1 + (workers - 1) * min(share, 1.0)


def _waits_together(run: Run, process: Process) -> bool:
    blocked = [
        found
        for other in run.processes
        if other.host == process.host
        for found in other.sampled
        if found.place in ("fetch", "collate") and not found.on_cpu
    ]
    together_s = sum(found.seconds for found in blocked if found.file.endswith(_MEETING_PLACES))
    return together_s > _OFTEN * sum(found.seconds for found in blocked)


def _mean(values: Sequence[int | None]) -> float | None:
    """None when any is not known."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None
