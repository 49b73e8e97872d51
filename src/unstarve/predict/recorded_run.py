"""What the model takes from a recorded run: its batches, what its epochs cost, and its machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median, quantiles
from typing import Any, NamedTuple

from unstarve.analyze.batch_production import EpochProduction, MadeBatch
from unstarve.analyze.stats import number_of
from unstarve.analyze.timeline import Timeline, passed_ns
from unstarve.model import Batch, Process, Run, Work
from unstarve.predict.machine_times import TYPICAL, LoadingCosts, loading_costs
from unstarve.predict.receiving import Reception, receptions

_MOST_BATCHES = 160
_STRETCH = 16
"""Neighbouring batches taken together from a long run: slowness often lasts for a while."""
_PAUSE = 4.0
"""A step that takes this many times the usual one is a pause."""
_SHORT_BURST_NS = 500_000
"""A CPU burst shorter than this ends before its time slice does."""
_MOST_LOCAL_RANKS = 8
_SHORTEST_NS = 500_000_000
"""Smallest distance of two readings of a clock that ticks a hundred times a second."""
_FEWEST_CORES = 0.05
_FEWEST_FIRST = 4
_ACCELERATED_THREADS = 2.0
USUAL_PRIVATE_BYTES = 3e8
"""A process that has imported torch and built a small model."""


@dataclass(frozen=True, slots=True)
class RecordedBatch:
    """One measured batch, how it was made, and the batch after it: the step lies between the two."""

    batch: Batch
    made: MadeBatch
    after: Batch
    worker_busy: bool
    """Its worker was making another batch while the training process received this one."""
    reception: Reception | None
    """None without workers."""
    first: bool
    """Its worker's first of the epoch."""


@dataclass(frozen=True, slots=True)
class EpochCosts:
    """A typical epoch after the first."""

    batches: int
    starts: float
    """Epochs begun per measured batch: warm-up and run need not end with an epoch."""
    iter_s: float
    """``iter(loader)``."""
    boot_s: float
    """CPU time from a worker's creation to its first batch, and what that costs more than a later one."""
    end_s: float
    """Asking for a batch when none is left."""
    between_s: float
    """Outside every epoch, per epoch, without validation: saving the model, for example."""
    first_s: float = 0.0
    """The second part of `boot_s`."""


class WarmUp(NamedTuple):
    """The epoch in which measuring began."""

    steps_s: tuple[float, ...]
    """Its steps before that, of which each may have let the workers get ahead."""
    batches: int
    """Its measured batches."""
    share: float
    """Of all measured batches."""


@dataclass(frozen=True, slots=True)
class RecordedMachine:
    """The machine under the loader."""

    cores: float
    foreign: float | None
    """Cores used by other processes; None when they were not counted."""
    grouped: bool
    """The kernel divides the cores between sessions or containers first, then inside each."""
    step_threads: float
    """Threads that a step keeps busy while the training thread computes."""
    slowdown: float
    """Duration of the recorded CPU work, relative to having a core to itself."""
    late_share: float = 0.0
    """Share of the delays before short CPU bursts that other processes cause, whatever the worker count."""
    costs: LoadingCosts = TYPICAL
    """Of what the run did not record: the hand-off where it had no workers, for example."""
    private_bytes: float = USUAL_PRIVATE_BYTES
    """Memory of the training process that a fork must describe anew."""


def recorded_batches(timeline: Timeline, made: Mapping[int, EpochProduction]) -> Sequence[RecordedBatch]:
    """Measured batches whose production, delivery and step were all recorded. `made` is keyed by epoch."""
    next_work = {
        (epoch, one.work.task): after.work
        for epoch, production in made.items()
        for works in production.by_worker
        for one, after in pairwise(works)
    }
    received = receptions(timeline.batches, made)
    own_ns = passed_ns(timeline.own)
    found = []
    for batch, after in pairwise(timeline.measured_batches):
        production = made.get(batch.epoch)
        apart = (after.epoch, after.position) != (batch.epoch, batch.position + 1)
        # Validation in the middle of an epoch is no step.
        apart |= own_ns(after.ask_ns) - own_ns(batch.got_ns) < after.ask_ns - batch.got_ns
        if production is None or batch.task is None or apart:
            continue
        one, later = production.by_task.get(batch.task), next_work.get((batch.epoch, batch.task))
        if one is None or (production.workers and one.received is None):
            continue
        busy = (
            later is not None
            and one.received is not None
            and later.begin_ns < one.received.ready_ns
            and later.done_ns > one.received.arrived_ns
        )
        key = batch.epoch, batch.task
        first = batch.task < production.workers
        found.append(RecordedBatch(batch, one, after, busy, received.get(key), first))
    return found


def lasting(recorded: Sequence[RecordedBatch]) -> tuple[Sequence[RecordedBatch], float]:
    """The batches without steps that will not come again, and the seconds that those took too long.

    Compilation, a search for the fastest kernels and a first allocation make steps slow at the beginning of a
    run; checkpoints and logging do so for ever. A slow step is gone for good if the steps after the last slow
    one are twice as many as ever lay between two: a pause with a rhythm would have come again.
    """
    took_ns = [o.after.ask_ns - o.batch.got_ns - (o.after.step_queued_ns or 0) for o in recorded]
    usual_ns = median(took_ns) if took_ns else 0
    slow = [at for at, ns in enumerate(took_ns) if ns > _PAUSE * usual_ns]
    if not slow or len(recorded) - 1 - slow[-1] < 2 * max(b - a for a, b in pairwise((-1, *slow))):
        return recorded, 0.0
    gone = set(slow)
    too_long_s = sum(took_ns[at] - usual_ns for at in slow) / 1e9
    return [one for at, one in enumerate(recorded) if at not in gone], too_long_s


def spread_out(recorded: Sequence[RecordedBatch]) -> Sequence[RecordedBatch]:
    """A long run as stretches spread over its whole length."""
    if len(recorded) <= _MOST_BATCHES:
        return recorded
    last, count = len(recorded) - _STRETCH, _MOST_BATCHES // _STRETCH
    firsts = [round(number * last / (count - 1)) for number in range(count)]
    return [one for first in firsts for one in recorded[first : first + _STRETCH]]


# Waiting for a core.


def step_late_ns(batch: Batch) -> float:
    """How late the step before this batch resumed because other work held the cores."""
    return _late_ns(batch.step_queued_ns, batch.step_cpu_ns, 1)


def work_late_ns(work: Work) -> float:
    """The same for making a batch."""
    collate_ns = _late_ns(work.collate_queued_ns, work.collate_cpu_ns, 1)
    return _late_ns(work.queued_ns, work.cpu_ns, work.switches + 1) + collate_ns


def _late_ns(queued_ns: int | None, cpu_ns: int, bursts: int) -> float:
    """The part of the time queued for a core that is late wake-up: once per burst, however short.

    The rest comes with long bursts, which are preempted more often the longer they are.
    """
    burst_ns = cpu_ns / max(bursts, 1)
    return (queued_ns or 0) / (1 + burst_ns / _SHORT_BURST_NS)


def _slowdown(recorded: Sequence[RecordedBatch], late_share: float) -> float:
    """Duration of CPU work in workers and steps, relative to having a core to itself.

    `late_share` of the late wake-ups is modelled as a delay, not as slowness.
    """
    cpu_ns = queued_ns = 0.0
    for one in recorded:
        work, after = one.made.work, one.after
        cpu_ns += work.cpu_ns + work.collate_cpu_ns + after.step_cpu_ns
        queued_ns += (work.queued_ns or 0) + (work.collate_queued_ns or 0) + (after.step_queued_ns or 0)
        queued_ns -= late_share * (work_late_ns(work) + step_late_ns(after))
    return 1 + queued_ns / cpu_ns if cpu_ns else 1.0


# The machine.


def machine_of(run: Run, timeline: Timeline, recorded: Sequence[RecordedBatch]) -> RecordedMachine:
    """The machine, from what the training process and its workers recorded about it and themselves."""
    process = timeline.process
    limits = [float(process.system[key]) for key in ("cores", "quota_cores") if process.system.get(key)]
    usable = max(min(limits, default=1.0), _FEWEST_CORES)
    ranks = sum(1 for p in run.processes if not p.worker and p.batches and p.host == process.host)
    ranks = min(max(ranks, 1), _MOST_LOCAL_RANKS)
    used = _foreign_cores(run, process)
    # Without that count, a queue of more workers than cores is assumed to be the workers' own.
    crew = max((len(crew.pids) for crew in process.crews), default=0)
    late_share = float(crew <= usable) if used is None else min(2 * used / usable, 1.0)
    beyond = float(process.system.get("cores") or usable) - usable  # a quota keeps us off these, not others
    return RecordedMachine(
        cores=usable / ranks,
        foreign=None if used is None else max(used - beyond, 0.0) / ranks,
        grouped=bool(process.system.get("grouped", True)),
        step_threads=min(_step_threads(process, recorded), _most_threads(process, usable)),
        slowdown=_slowdown(recorded, late_share),
        late_share=late_share,
        costs=loading_costs(run.machine),
        private_bytes=_private_bytes(process),
    )


def _private_bytes(process: Process) -> float:
    found = [p.rss_bytes - p.shared_bytes for p in process.pulses if p.rss_bytes and p.shared_bytes]
    return float(max(found, default=0)) or USUAL_PRIVATE_BYTES


def _foreign_cores(run: Run, process: Process) -> float | None:
    """Cores used by other processes; None where this one may not use all cores."""
    readings = _readings(process)
    if readings is None:
        return None
    before, now = readings
    if None in (before["machine_cpu_s"], now["machine_cpu_s"]):
        return None
    if process.system.get("cores") != now["machine_cores"]:
        return None
    ours = [other for other in run.processes if other.host == process.host]
    own_s = sum(_cpu_between(other, before["at_ns"], now["at_ns"]) for other in ours)
    passed_s: float = (now["at_ns"] - before["at_ns"]) / 1e9
    busy_s: float = now["machine_cpu_s"] - before["machine_cpu_s"]
    return max(busy_s - own_s, 0.0) / passed_s


def _readings(process: Process) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """The first and the last reading of the process's CPU time, if they lie far enough apart."""
    before, now = process.system.get("usage_before"), process.system.get("usage")
    if not before or not now or now["at_ns"] - before["at_ns"] < _SHORTEST_NS:
        return None
    return before, now


def _cpu_between(process: Process, begin_ns: int, end_ns: int) -> float:
    """CPU seconds of a process between two moments, assuming an even rate."""
    now = process.system.get("usage")
    if not now:
        return 0.0
    before = process.system.get("usage_before") or now
    # A worker is recorded from its birth on; a training process has imported and built things before.
    first_ns, first_s = (
        (process.start_ns, 0.0) if process.worker else (before["at_ns"], before["process_cpu_s"])
    )
    inside_ns = max(min(end_ns, now["at_ns"]) - max(begin_ns, first_ns), 0)
    lived_ns = now["at_ns"] - first_ns
    return float(now["process_cpu_s"] - first_s) * inside_ns / lived_ns if lived_ns > 0 else 0.0


def _step_threads(process: Process, recorded: Sequence[RecordedBatch]) -> float:
    """Threads that compute at once in a step; 1 where only the training thread's time is known."""
    readings = _readings(process)
    if readings is None:
        return 1.0
    begin_ns, end_ns = (reading["at_ns"] for reading in readings)
    inside = [one for one in recorded if begin_ns <= one.batch.got_ns and one.after.got_ns <= end_ns]
    covered_ns = sum(one.after.got_ns - one.batch.got_ns for one in inside)
    running_ns = sum(one.after.ask_ns - one.batch.got_ns - (one.after.step_queued_ns or 0) for one in inside)
    if not inside or running_ns <= 0:
        return 1.0
    spent_s = readings[1]["process_cpu_s"] - readings[0]["process_cpu_s"]
    spent_ns = spent_s * 1e9 * covered_ns / (end_ns - begin_ns)
    in_waits_ns = sum(one.after.wait_cpu_ns for one in inside)
    return max(float(spent_ns - in_waits_ns) / running_ns, 1.0)


def _most_threads(process: Process, cores: float) -> float:
    """The most threads that a step can keep busy.

    A step on an accelerator needs one thread and the one that goes backward. What else computes in its
    process pins batches or, without workers, helps with the samples and spins in between.
    """
    return _ACCELERATED_THREADS if process.device != "cpu" else max(cores, 1.0)


# Epochs.


def epoch_costs(
    timeline: Timeline, made: Mapping[int, EpochProduction], slowdown: float
) -> EpochCosts | None:
    """None when no epoch began in the measured part, or none is known. `made` is keyed by epoch."""
    measured = timeline.measured_batches
    firsts = sum(batch.position == 0 for batch in measured)
    main = [
        epoch
        for epoch in timeline.process.epochs
        if epoch.loader == timeline.main and (epoch.loader, epoch.epoch) not in timeline.others
    ]
    if not firsts or measured[0].block or not main:
        return None
    later = [epoch for epoch in main if epoch.begin_ns > measured[0].ask_ns] or main
    counts = Counter[int]()
    for batch in timeline.batches:
        counts[batch.epoch] += batch.weight
    whole = [counts[epoch.epoch] for epoch in main if epoch.end_ns is not None and counts[epoch.epoch]]
    boots = [
        works[0].work.begin_ns - epoch.begin_ns
        for epoch in later
        if (production := made.get(epoch.epoch)) is not None and production.workers
        for works in production.by_worker
        if works
    ]
    ends = [e.end_ns - e.last_ask_ns for e in main if e.end_ns is not None and e.last_ask_ns is not None]
    first_s = _first_s(made.values())
    iter_s = median(epoch.ready_ns - epoch.begin_ns for epoch in later) / 1e9
    measured_ns = passed_ns(timeline.measured)
    last_ns = timeline.measured[-1].end_ns
    inside_ns = sum(measured_ns(e.end_ns or last_ns) - measured_ns(e.begin_ns) for e in main)
    return EpochCosts(
        batches=round(fmean(whole)) if whole else max(counts.values()),
        starts=firsts / number_of(measured),
        iter_s=iter_s,
        # Workers are created one after another while iter() runs: on average half of it is not theirs.
        boot_s=first_s + (max(median(boots) / 1e9 - iter_s / 2, 0.0) / slowdown if boots else 0.0),
        end_s=median(ends) / 1e9 if ends else 0.0,
        between_s=max(timeline.measured_s - inside_ns / 1e9, 0.0) / firsts,
        first_s=first_s,
    )


def _first_s(made: Iterable[EpochProduction]) -> float:
    """CPU seconds that a worker's first batch costs more than later ones: its process has no memory yet.

    The lower quartile of the first ones must show it, as chance rarely lets it.
    """
    first: list[int] = []
    later: list[int] = []
    for production in made:
        for task, one in production.by_task.items():
            took_ns = first if task < production.workers else later
            took_ns.append(one.work.cpu_ns + one.work.collate_cpu_ns)
    if len(first) < _FEWEST_FIRST or len(later) < _FEWEST_FIRST:
        return 0.0
    return max(quantiles(first, n=4)[0] - median(later), 0.0) / 1e9


def warm_up(timeline: Timeline) -> WarmUp | None:
    """None when measuring began with an epoch, or its beginning was not recorded step by step."""
    first, measured = timeline.measured_batches[0], timeline.measured_batches
    before = [one for one in timeline.batches if one.epoch == first.epoch and one.ask_ns < first.ask_ns]
    inside = sum(one.epoch == first.epoch for one in measured)
    whole = [one.position for one in (*before, first)] == list(range(len(before) + 1))
    if not before or not whole or any(one.block or one.thinned is not None for one in measured):
        return None
    steps_s = tuple((after.ask_ns - one.got_ns) / 1e9 for one, after in pairwise((*before, first)))
    return WarmUp(steps_s, inside, inside / len(measured))
