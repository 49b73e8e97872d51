"""Why a wait happened: seconds per cause, from what the batch's worker did during the wait.

A wait runs from *ask* to *got*. During that time the worker that made the batch was fetching (this batch or
earlier ones), collating, or done; each stretch is split by the counters recorded around it. What remains
after the worker is done is the hand-off, unless the worker is hardly ever idle: then it makes its next
batches meanwhile, and its work is what training waits for. Two parts are taken out first: time the training
thread spent in the sampler, and time in which later batches were finished and workers idle because this one
was late.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from unstarve.analyze.batch_production import EpochProduction, Examples, MadeBatch
from unstarve.model import Batch, Cause, Work

Seconds = dict[Cause, float]

_SLOWEST_DISK = 5e6
"""Bytes per second: slower reads than this are not the disk's fault."""

_MOSTLY = 0.5
_NEAREST = 64
"""Batches on each side of a stretch that is not kept one by one."""
_OUTLIERS = 0.05


def blame(batch: Batch, production: EpochProduction | None) -> Seconds:
    """Seconds of a batch's wait per cause; they sum to the wait."""
    wait_s = batch.wait_ns / 1e9
    if batch.thinned is not None and production is not None and production.examples is not None:
        return _like_examples(batch, production.examples)
    if production is None:
        return _blame(batch, None, wait_s)
    key = batch.position, batch.ask_ns
    found = production.blamed.get(key)
    if found is None:
        found = production.blamed[key] = _blame(batch, production, wait_s)
    return found


def _blame(batch: Batch, production: EpochProduction | None, wait_s: float) -> Seconds:
    if batch.position == 0 and (production is None or production.workers):
        sampler_s = min(batch.sampler_ns / 1e9, wait_s)
        return _balanced({Cause.SAMPLER: sampler_s, Cause.STARTUP: wait_s - sampler_s}, wait_s)
    if production is None or batch.task is None or batch.task not in production.by_task:
        return _from_the_outside(batch)
    made = production.by_task[batch.task]
    parts: defaultdict[Cause, float] = defaultdict(float)
    parts[Cause.SAMPLER] = min(batch.sampler_ns / 1e9, wait_s)
    # The sampler runs at the end of the wait: it draws indices for a later batch.
    end_ns = batch.got_ns - min(batch.sampler_ns, batch.wait_ns)
    if production.workers == 0:
        _add(parts, _own_work(batch, made.work, end_ns - batch.ask_ns))
    else:
        _add(parts, _workers_time(batch, made, production, end_ns))
    return _balanced(parts, wait_s)


def _like_examples(batch: Batch, examples: Examples) -> Seconds:
    """The wait of many batches, split as that of the batches of the time that were kept one by one."""
    if examples.sums is None:
        examples.sums = _sums_of(examples)
    moments, causes, sums = examples.sums
    first = max(bisect_left(moments, batch.ask_ns) - _NEAREST, 0)
    last = min(bisect_left(moments, batch.last_ns) + _NEAREST, len(moments))
    parts = (sums[last] - sums[first]).tolist()
    return _balanced(dict(zip(causes, parts, strict=True)), batch.wait_ns / 1e9)


def _sums_of(examples: Examples) -> tuple[list[int], list[Cause], NDArray[np.float64]]:
    """When each example was delivered, and the seconds per cause of all before it.

    The slowest were kept because they are slow: they stand for no others.
    """
    waits = sorted(batch.wait_ns for batch in examples.batches)
    longest_ns = waits[int((len(waits) - 1) * (1 - _OUTLIERS))]
    typical = [batch for batch in examples.batches if batch.wait_ns <= longest_ns]
    causes = list(Cause)
    parts = np.zeros((len(typical) + 1, len(causes)))
    for place, batch in enumerate(typical, 1):
        for cause, seconds in blame(batch, examples.made.get((batch.loader, batch.epoch))).items():
            parts[place, causes.index(cause)] = seconds
    return [batch.got_ns for batch in typical], causes, np.cumsum(parts, axis=0)


def _own_work(batch: Batch, work: Work, available_ns: int) -> Seconds:
    """Without workers, the wait is the work itself and what surrounds it."""
    parts = defaultdict(float, split_fetch(work))
    _add(parts, split_collate(work, in_worker=False))
    rest_s = max(available_ns / 1e9 - sum(parts.values()), 0.0)
    # Counters are read around the fetch: earlier queueing may belong to the step, but torch itself does
    # almost nothing between ask and fetch.
    before_s = max(work.begin_ns - batch.ask_ns - batch.sampler_ns, 0) / 1e9
    queued_s = min(before_s, (batch.step_queued_ns or 0) / 1e9, rest_s)
    parts[Cause.CONTENTION] += queued_s
    parts[Cause.UNKNOWN] += rest_s - queued_s
    return parts


def _workers_time(batch: Batch, made: MadeBatch, production: EpochProduction, end_ns: int) -> Seconds:
    parts: defaultdict[Cause, float] = defaultdict(float)
    done_ns = min(max(made.work.done_ns, batch.ask_ns), end_ns)
    if made.worker in production.pacing:
        # It makes the next batch during the hand-off, so the hand-off costs nothing.
        done_ns = end_ns
    held_ns = _held_back(batch, made, production, done_ns)
    parts[Cause.ORDER] = held_ns / 1e9
    making = _done_during(production.by_worker[made.worker], batch.ask_ns, done_ns)
    making_s = sum(making.values())
    unseen_s = max((done_ns - batch.ask_ns) / 1e9 - making_s, 0.0)
    # The task was still on its way to the worker.
    _add(making, _answered(batch, production, batch.ask_ns, done_ns), unseen_s)
    total_s = making_s + unseen_s
    rest = 1 - parts[Cause.ORDER] / total_s if total_s else 0.0
    _add(parts, {cause: seconds * rest for cause, seconds in making.items()})
    _add(parts, _handed_over(batch, made, production, done_ns, end_ns))
    return parts


def _done_during(works: tuple[MadeBatch, ...], begin_ns: int, end_ns: int) -> defaultdict[Cause, float]:
    """A worker's seconds per cause between two moments."""
    parts: defaultdict[Cause, float] = defaultdict(float)
    first = bisect_left(works, begin_ns, key=lambda made: made.work.done_ns)
    for made in islice(works, first, None):
        work = made.work
        if work.begin_ns >= end_ns:
            break
        fetched, collated = (work.begin_ns, work.collate_ns), (work.collate_ns, work.done_ns)
        _add(parts, split_fetch(work), _overlap(*fetched, begin_ns, end_ns))
        _add(parts, split_collate(work, in_worker=True), _overlap(*collated, begin_ns, end_ns))
    return parts


def _held_back(batch: Batch, made: MadeBatch, production: EpochProduction, done_ns: int) -> float:
    """Nanoseconds in which a later batch was finished and other workers were idle."""
    first_ns = production.earliest_later_ns.get(made.work.task)
    if first_ns is None or production.workers < 2:
        return 0.0
    begin_ns = max(first_ns, batch.ask_ns)
    if begin_ns >= done_ns:
        return 0.0
    others = production.workers - 1
    own_s = sum(_done_during(production.by_worker[made.worker], begin_ns, done_ns).values())
    busy_ns = production.busy_ns(done_ns) - production.busy_ns(begin_ns) - own_s * 1e9
    return max((done_ns - begin_ns) * others - busy_ns, 0.0) / others


def _handed_over(
    batch: Batch, made: MadeBatch, production: EpochProduction, done_ns: int, end_ns: int
) -> Seconds:
    """From finished in the worker to delivered: sending, receiving, pinning.

    Only the hand-off's own cost is billed to it. While a worker is busy with its next batch, its sending
    thread waits for the interpreter and for a core: that time is billed to what the worker is busy with. An
    idle worker needs a core to answer, too, and waits for it as the busy ones do,
    or as the step just before did.
    """
    left_ns = end_ns - done_ns
    if left_ns <= 0:
        return {}
    parts: defaultdict[Cause, float] = defaultdict(float)
    queued_ns = min(batch.wait_queued_ns or 0, left_ns)
    parts[Cause.CONTENTION] = queued_ns / 1e9
    left_ns -= queued_ns
    if made.received is not None:
        pin_ns = max(0, min(made.received.pinned_ns, end_ns) - max(made.received.ready_ns, done_ns))
        parts[Cause.PIN] = min(pin_ns, left_ns) / 1e9
        left_ns -= min(pin_ns, left_ns)
    sending_ns = 0 if made.sent is None else made.sent.cpu_ns
    own_ns = min(sending_ns + batch.wait_cpu_ns, left_ns)
    parts[Cause.HANDOFF] = own_ns / 1e9
    left_ns -= own_ns
    meanwhile = _done_during(production.by_worker[made.worker], done_ns, end_ns)
    busy_s, span_s = sum(meanwhile.values()), (end_ns - done_ns) / 1e9
    _add(parts, meanwhile, left_ns / 1e9 / span_s)
    idle_s = left_ns / 1e9 * max(1 - busy_s / span_s, 0.0)
    _add(parts, _answered(batch, production, done_ns, end_ns), idle_s)
    return parts


def _answered(batch: Batch, production: EpochProduction, begin_ns: int, end_ns: int) -> Seconds:
    """Shares of the time in which a worker that makes no batch takes a task or hands out a finished one."""
    queued_ns = batch.step_queued_ns or 0
    in_step = queued_ns / max(queued_ns + batch.step_cpu_ns, 1)
    queueing = max(production.queueing_share(begin_ns, end_ns), in_step)
    return {Cause.HANDOFF: 1 - queueing, Cause.CONTENTION: queueing}


def split_fetch(work: Work) -> Seconds:
    """Seconds of one fetch: on a CPU, waiting for a CPU, for the disk, or for anything else."""
    wall_s = (work.collate_ns - work.begin_ns) / 1e9
    cpu_s = min(work.cpu_ns / 1e9, wall_s)
    queued_s = min((work.queued_ns or 0) / 1e9, wall_s - cpu_s)
    helped_s = _helped_s(work, wall_s - cpu_s - queued_s)
    blocked_s = wall_s - cpu_s - queued_s - helped_s
    storage, asked = work.storage_bytes or 0, work.asked_bytes or 0
    # Kernel time for bytes that were not in memory is billed to the disk, not to the transform.
    cold = storage / max(asked, storage) if storage else 0.0
    disk_cpu_s = min(work.system_ns / 1e9, cpu_s) * cold
    if work.delay_ns is not None:
        disk_s = min(work.delay_ns / 1e9, blocked_s)
    else:
        disk_s = min(blocked_s, storage / _SLOWEST_DISK)
    # Where a counter is missing, the rest may be the disk or waiting for a core.
    told_apart = work.queued_ns is not None and (work.storage_bytes is not None or work.delay_ns is not None)
    return {
        Cause.CPU: cpu_s - disk_cpu_s + helped_s,
        Cause.DISK: disk_s + disk_cpu_s,
        Cause.REMOTE if told_apart else Cause.UNKNOWN: blocked_s - disk_s,
        Cause.CONTENTION: queued_s,
    }


def fetch_cpu_s(work: Work) -> float:
    """CPU seconds of one fetch, on any thread."""
    wall_s = (work.collate_ns - work.begin_ns) / 1e9
    cpu_s = min(work.cpu_ns / 1e9, wall_s)
    queued_s = min((work.queued_ns or 0) / 1e9, wall_s - cpu_s)
    return cpu_s + _helped_s(work, wall_s - cpu_s - queued_s)


def _helped_s(work: Work, blocked_s: float) -> float:
    """Seconds in which a fetch waited for other threads of its process to compute.

    Unless those threads were busy for most of the blocked time, the fetch waited for something else.
    """
    helped_s = work.helped_ns / 1e9
    return min(helped_s, blocked_s) if helped_s >= _MOSTLY * blocked_s else 0.0


def split_collate(work: Work, *, in_worker: bool) -> Seconds:
    """Seconds of one collate. In a worker, kernel time is for shared memory: part of the hand-off."""
    wall_s = (work.done_ns - work.collate_ns) / 1e9
    cpu_s = min(work.collate_cpu_ns / 1e9, wall_s)
    queued_s = min((work.collate_queued_ns or 0) / 1e9, wall_s - cpu_s)
    shared_s = min(work.collate_system_ns / 1e9, cpu_s) if in_worker else 0.0
    return {
        Cause.COLLATE: cpu_s - shared_s,
        Cause.HANDOFF: shared_s,
        Cause.CONTENTION: queued_s,
        Cause.UNKNOWN if work.collate_queued_ns is None else Cause.REMOTE: wall_s - cpu_s - queued_s,
    }


def _from_the_outside(batch: Batch) -> Seconds:
    """A loader that is not recorded from the inside: only the training thread's counters are known."""
    wait_s = batch.wait_ns / 1e9
    cpu_s = min(batch.wait_cpu_ns / 1e9, wait_s)
    queued_s = min((batch.wait_queued_ns or 0) / 1e9, wait_s - cpu_s)
    return {Cause.CPU: cpu_s, Cause.CONTENTION: queued_s, Cause.UNKNOWN: wait_s - cpu_s - queued_s}


def _overlap(begin_ns: int, end_ns: int, from_ns: int, to_ns: int) -> float:
    """The share of [begin, end] that lies inside [from, to]."""
    if end_ns <= begin_ns:
        return 0.0
    return max(0, min(end_ns, to_ns) - max(begin_ns, from_ns)) / (end_ns - begin_ns)


def _add(into: defaultdict[Cause, float], parts: Mapping[Cause, float], factor: float = 1.0) -> None:
    for cause, seconds in parts.items():
        into[cause] += seconds * factor


def _balanced(parts: Mapping[Cause, float], wait_s: float) -> Seconds:
    """The same proportions, scaled to sum to the wait: clocks of several processes differ slightly."""
    total = sum(parts.values())
    if total <= 0:
        return {Cause.UNKNOWN: wait_s}
    return {cause: seconds * wait_s / total for cause, seconds in parts.items() if seconds > 0}


def total(parts: Iterable[Mapping[Cause, float]]) -> Seconds:
    """Sums per cause."""
    sums: defaultdict[Cause, float] = defaultdict(float)
    for part in parts:
        _add(sums, part)
    return dict(sums)
