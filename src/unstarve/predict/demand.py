"""Demand: the work that each recorded batch asks of workers, disk, training thread and accelerator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, NamedTuple

from unstarve.analyze.blame import fetch_cpu_s, split_fetch
from unstarve.analyze.stats import number_of
from unstarve.analyze.timeline import Timeline
from unstarve.model import Batch, Cause, Doing, Process, Run, Work
from unstarve.predict.device_time import Stalls, lost_share, most_ahead_s, runs_on, stall_ns, stalls_of
from unstarve.predict.recorded_run import (
    EpochCosts,
    RecordedBatch,
    RecordedMachine,
    WarmUp,
    epoch_costs,
    lasting,
    machine_of,
    spread_out,
    step_late_ns,
    warm_up,
    work_late_ns,
)
from unstarve.predict.training_job import TrainingJob

FEWEST_BATCHES = 15
"""Below this many measured batches nothing is predicted."""
_SHARED_WAITS = (
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
"""Reading counters and queues counts as reading, too."""
_AROUND_NS = 150_000
"""CPU time of the training thread inside a wait that is not spent on unpacking the batch."""


class BatchDemand(NamedTuple):
    """Seconds that one batch takes of each participant that has a core to itself."""

    cpu_s: float = 0.0
    """Worker, CPU: the samples."""
    collate_s: float = 0.0
    """Worker, CPU: building the batch from them."""
    blocked_s: float = 0.0
    """Worker, off the CPU."""
    late_s: float = 0.0
    """Worker, off the CPU: resumed late because other processes held the cores."""
    disk_s: float = 0.0
    """Worker, waiting for a disk that serves nobody else."""
    send_s: float = 0.0
    """Sending thread, CPU."""
    send_delay_s: float = 0.0
    """Sending thread, off the CPU, until the message arrives."""
    index_s: float = 0.0
    """Training thread, CPU: drawing the indices of a batch."""
    take_s: float = 0.0
    """Training thread, CPU: receiving and unpacking."""
    take_delay_s: float = 0.0
    """Training thread, off the CPU: receiving and unpacking."""
    busy_delay_s: float = 0.0
    """Added to `take_delay_s` while the worker computes: it must release its interpreter lock first."""
    pin_s: float = 0.0
    """Pin thread, CPU; 0 without pinning."""
    step_s: float = 0.0
    """Training thread, CPU."""
    step_delay_s: float = 0.0
    """Training thread, off the CPU: waiting for an accelerator."""
    ahead_s: float = 0.0
    """Time the accelerator still works on the batch after the training thread asked for the next one."""

    @property
    def device_s(self) -> float:
        """Time an accelerator works on the batch, from its delivery, when it has nothing else to do."""
        return self.step_s + self.step_delay_s + self.ahead_s


class Competition(NamedTuple):
    """Other processes that want the same cores."""

    threads: float = 0.0
    """Their threads that always want a core; with `grouped`, their groups."""
    spare_cores: float = 0.0
    """Cores that they leave free in any case."""
    grouped: bool = False
    """The kernel divides cores between sessions or containers first: more workers get no larger share."""

    def speed(self, users: float, cores: float) -> float:
        """Speed of each of `users` threads of ours, relative to one with a core to itself."""
        if not self.grouped:
            all_ours = cores * users / (users + self.threads)
        else:
            # A group's weight is spread over the cores it runs on, so it counts for less on each.
            used = min(users, cores)
            all_ours = cores * used / (cores + self.threads * used)
        return min(1.0, cores / users, max(all_ours, self.spare_cores) / users)


NO_COMPETITION = Competition()


@dataclass(frozen=True, slots=True)
class LoaderDemand:
    """Everything the model knows about a recorded loader."""

    loader: str
    config: Mapping[str, Any]
    """Arguments of the DataLoader."""
    workers: int
    pinned: bool
    """Batches go through the pin thread, which torch creates only where there is an accelerator."""
    batches: tuple[BatchDemand, ...]
    """The measured batches, in order, as the recorded loader made them."""
    samples: float | None
    """Per batch, as are the next two."""
    nbytes: float | None
    tensors: int | None
    memory_s: float
    """Kernel part of a batch's CPU time: shared memory for the batch, fresh memory for its samples."""
    collate_memory_s: float
    """Part of `memory_s` spent while building the batch: in workers, on shared memory."""
    read_bytes: float | None
    """Bytes from storage each time a fetch was blocked."""
    readers: float
    """Mean number of workers waiting for storage at once, as seen by one that waits."""
    period_s: float
    """Measured seconds per batch."""
    wait_share: float
    """Share of the time spent waiting for data, with the accelerator idle."""
    machine: RecordedMachine
    epochs: EpochCosts | None
    """None when the run lies inside one epoch."""
    waits_together: bool
    """Blocked workers were seen in locks, pipes or queues, which they may share."""
    warm_up: WarmUp | None = None
    """None where there was none, or nothing is known about it."""
    competition: Competition = NO_COMPETITION
    """Filled in by `scenario.with_competition`."""
    head_start: float = 1.0
    """`period_s`, relative to the measured one; filled in by `head_start.lasting_demand`."""

    @property
    def makes_workers(self) -> bool:
        """Every epoch created its workers anew, so the cost of that was measured."""
        return self.workers > 0 and not self.config.get("persistent_workers")


def loader_demand(run: Run, job: TrainingJob) -> LoaderDemand | str:
    """The demand of the main loader's batches, or the reason why it cannot be modelled."""
    timeline, productions = job.lead.timeline, job.lead.productions
    process, main = timeline.process, timeline.main
    loader = next((x for x in process.loaders if x.id == main), None)
    if loader is None or "num_workers" not in loader.config:
        kind = "its loader" if loader is None else f"{loader.name} ({loader.kind})"
        return f"{kind} is not a torch DataLoader"
    made = {epoch: production for (number, epoch), production in productions.items() if number == main}
    found, paused_s = lasting(job.recorded(main))
    recorded, measured_s = spread_out(found), timeline.measured_s - paused_s + _open_step_s(timeline, found)
    if len(recorded) < FEWEST_BATCHES:
        return f"it recorded only {len(recorded)} of the {FEWEST_BATCHES} batches needed; let it run longer"
    if measured_s <= 0:
        return "its measured batches took no time at all"
    if not made:
        return "the records of how its batches were made are missing"
    workers = max(production.workers for production in made.values())
    machine = machine_of(run, timeline, recorded)
    pinned = bool(loader.config.get("pin_memory")) and process.device != "cpu"
    stalls = stalls_of(job, main)
    epochs = epoch_costs(timeline, made, machine.slowdown)
    first_s = 0.0 if epochs is None or loader.config.get("persistent_workers") else epochs.first_s
    batches = _batch_demands(recorded, workers, machine, pinned, stalls, first_s)
    period_s = measured_s / number_of(timeline.measured_batches)
    return LoaderDemand(
        loader=loader.name,
        config=loader.config,
        workers=workers,
        pinned=pinned,
        batches=batches,
        samples=_mean([one.batch.size for one in recorded]),
        nbytes=_mean([one.batch.nbytes for one in recorded]),
        tensors=loader.tensors,
        memory_s=_memory_s([one.made.work for one in recorded]),
        collate_memory_s=fmean(one.made.work.collate_system_ns for one in recorded) / 1e9,
        read_bytes=_read_bytes(recorded),
        readers=_readers(batches, workers, period_s),
        period_s=period_s,
        wait_share=(
            timeline.wait_s / measured_s * lost_share(recorded, stalls)
            if job.lost_share is None
            else job.lost_share
        ),
        machine=machine,
        epochs=epochs,
        waits_together=_waits_together(run, process),
        warm_up=warm_up(timeline) if workers else None,
    )


def _open_step_s(timeline: Timeline, recorded: Sequence[RecordedBatch]) -> float:
    """The step that is missing where the measured part begins and ends with a wait."""
    waits = (Doing.START, Doing.WAIT)
    if not recorded or not all(timeline.measured[at].doing in waits for at in (0, -1)):
        return 0.0
    return fmean(one.after.ask_ns - one.batch.got_ns for one in recorded) / 1e9


def _batch_demands(
    recorded: Sequence[RecordedBatch],
    workers: int,
    machine: RecordedMachine,
    pinned: bool,
    stalls: Stalls,
    first_s: float,
) -> tuple[BatchDemand, ...]:
    """`first_s` of a new worker's first batch are its start's."""
    take_delay_s, busy_delay_s = _take_delays(recorded, machine.slowdown)
    ahead_s = most_ahead_s(recorded, stalls)
    take_delay_s += pipe_s(recorded, pinned=pinned)
    found = []
    for one in recorded:
        making = _production(one, stalls, machine.late_share, ahead_s)
        cpu_s = max(making.cpu_s - first_s, 0.0) if one.first else making.cpu_s
        making = making._replace(cpu_s=cpu_s, take_delay_s=take_delay_s, busy_delay_s=busy_delay_s)
        found.append(_with_delivery(one, making, workers, machine.slowdown, pinned))
    return tuple(found)


def _production(one: RecordedBatch, stalls: Stalls, late_share: float, longest_s: float) -> BatchDemand:
    """Making the batch, and the step on it."""
    work = one.made.work
    fetch_s, collate_s = (work.collate_ns - work.begin_ns) / 1e9, (work.done_ns - work.collate_ns) / 1e9
    parts = split_fetch(work)
    cpu_s, collate_cpu_s = fetch_cpu_s(work), min(work.collate_cpu_ns / 1e9, collate_s)
    collate_queued_s = min((work.collate_queued_ns or 0) / 1e9, collate_s - collate_cpu_s)
    elsewhere_s = parts.get(Cause.REMOTE, 0.0) + parts.get(Cause.UNKNOWN, 0.0)
    step_s, step_delay_s = _step(one.batch, one.after)
    ahead_s = (one.after.wait_ns - stall_ns(one.after, stalls)) / 1e9
    held_s = min(step_delay_s, max(longest_s - ahead_s, 0.0)) if runs_on(one.after, stalls) else 0.0
    return BatchDemand(
        cpu_s=cpu_s,
        collate_s=collate_cpu_s,
        blocked_s=elsewhere_s + collate_s - collate_cpu_s - collate_queued_s,
        late_s=late_share * work_late_ns(work) / 1e9,
        disk_s=max(fetch_s - cpu_s - parts[Cause.CONTENTION] - elsewhere_s, 0.0),
        step_s=step_s,
        step_delay_s=step_delay_s - held_s + late_share * step_late_ns(one.after) / 1e9,
        ahead_s=ahead_s + held_s,
    )


def _with_delivery(
    one: RecordedBatch, demand: BatchDemand, workers: int, slowdown: float, pinned: bool
) -> BatchDemand:
    """The same with delivery to the training thread. Time queued for a core is left out."""
    batch, sent, received = one.batch, one.made.sent, one.made.received
    index_s = min(batch.sampler_ns, batch.wait_ns) / 1e9 / slowdown
    take_s = max(batch.wait_cpu_ns / 1e9 - index_s, 0.0)
    if not workers:
        making_ns = one.made.work.done_ns - one.made.work.begin_ns
        around_s = max(batch.wait_ns - making_ns, 0) / 1e9 / slowdown
        return demand._replace(index_s=index_s, take_s=max(around_s - index_s, 0.0))
    send_s = sent.cpu_ns / 1e9 if sent is not None else 0.0
    sending_s = (sent.end_ns - one.made.work.done_ns) / 1e9 / slowdown if sent is not None else 0.0
    demand = demand._replace(
        index_s=index_s, take_s=take_s, send_s=send_s, send_delay_s=max(sending_s - send_s, 0.0)
    )
    if received is None or one.reception is None or not pinned:
        return demand
    # The pin thread receives; what the training thread does to get the batch from it counts as step.
    return demand._replace(
        take_s=(received.ready_ns - received.arrived_ns) / 1e9 / slowdown,
        pin_s=one.reception.pin_ns / 1e9 / slowdown,
        step_s=demand.step_s + take_s,
    )


def _step(batch: Batch, after: Batch) -> tuple[float, float]:
    """Seconds of a step on and off the CPU, without those queued for a core."""
    wall_s = (after.ask_ns - batch.got_ns) / 1e9
    queued_s = min((after.step_queued_ns or 0) / 1e9, wall_s)
    cpu_s = min(after.step_cpu_ns / 1e9, wall_s - queued_s)
    return cpu_s, wall_s - queued_s - cpu_s


def _take_delays(recorded: Sequence[RecordedBatch], slowdown: float) -> tuple[float, float]:
    """Seconds that receiving waits for the worker: always, and in addition when the worker is busy."""
    delays: dict[bool, list[float]] = {False: [], True: []}
    for one in recorded:
        if one.made.received is not None:
            lasted_ns = (one.made.received.ready_ns - one.made.received.arrived_ns) / slowdown
            own_ns = max(one.batch.wait_cpu_ns - one.batch.sampler_ns - _AROUND_NS, 0)
            delays[one.worker_busy].append(lasted_ns - own_ns)
    idle_s = max(median(delays[False]), 0.0) / 1e9 if delays[False] else 0.0
    busy_s = max(fmean(delays[True]), 0.0) / 1e9 if delays[True] else 0.0
    return (min(idle_s, busy_s) if delays[True] else idle_s), max(busy_s - idle_s, 0.0)


def pipe_s(recorded: Sequence[RecordedBatch], *, pinned: bool) -> float:
    """Seconds a message spends in the pipe while the thread that receives it looks for one.

    A pin thread always looks, the training thread while it waits, and neither before it is done with the
    message before: standing in that line is no cost of a message.
    """
    found = [
        one.made.received.arrived_ns
        - max(one.made.sent.end_ns, one.reception.free_ns, 0 if pinned else one.batch.ask_ns)
        for one in recorded
        if one.made.sent is not None and one.made.received is not None and one.reception is not None
    ]
    looked = [ns for ns in found if ns > 0]
    return median(looked) / 1e9 if looked else 0.0


def _memory_s(works: Sequence[Work]) -> float:
    """Kernel seconds per batch for fresh memory; where files are read, the kernel's part of fetching is I/O.

    Bytes may be reported with a later batch: only their mean counts.
    """
    asked = fmean(work.asked_bytes or 0 for work in works)
    stored = fmean(work.storage_bytes or 0 for work in works)
    reads = asked > _OWN_READS_BYTES or stored > 0
    return fmean(work.collate_system_ns + (0 if reads else work.system_ns) for work in works) / 1e9


def _read_bytes(recorded: Sequence[RecordedBatch]) -> float | None:
    stored = sum(one.made.work.storage_bytes or 0 for one in recorded)
    blocked = sum(one.made.work.switches for one in recorded)
    return stored / blocked if stored and blocked else None


def _readers(batches: Sequence[BatchDemand], workers: int, period_s: float) -> float:
    if not workers:
        return 1.0
    share = fmean(batch.disk_s for batch in batches) / (workers * period_s)
    return 1 + (workers - 1) * min(share, 1.0)


def _waits_together(run: Run, process: Process) -> bool:
    blocked = [
        found
        for other in run.processes
        if other.host == process.host
        for found in other.sampled
        if found.place in ("fetch", "collate") and not found.on_cpu
    ]
    together_s = sum(found.seconds for found in blocked if found.file.endswith(_SHARED_WAITS))
    return together_s > _OFTEN * sum(found.seconds for found in blocked)


def _mean(values: Sequence[int | None]) -> float | None:
    """None when any value is unknown."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None
