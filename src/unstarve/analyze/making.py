"""Processes → how each batch was made: which worker, from when to when, and what it cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from unstarve.model import Process, Received, Sent, Work

_HARDLY_IDLE = 0.75
"""Busy for this share of the time, a worker loses at most a quarter of it to everything that it waits for."""
_FEWEST_TO_PACE = 4


@dataclass(frozen=True, slots=True)
class Made:
    """One batch from the worker's first touch to the training process."""

    worker: int
    """Place of the worker in its crew; 0 when the training process made the batch itself."""
    work: Work
    sent: Sent | None
    received: Received | None


@dataclass(frozen=True, slots=True)
class Production:
    """All batches of one epoch of one loader."""

    workers: int
    """0 when the training process made them itself."""
    by_task: dict[int, Made]
    by_worker: tuple[tuple[Made, ...], ...]
    """Per worker, in the order of the work."""
    pacing: frozenset[int] = frozenset()
    """Places of workers that were hardly ever idle: whatever else is done beside them, they set the pace."""


def productions(process: Process, all_processes: Sequence[Process]) -> dict[tuple[int, int], Production]:
    """How each (loader, epoch) of a training process was made, as far as that was recorded."""
    made = _by_workers(process, all_processes)
    own: defaultdict[tuple[int, int], list[Work]] = defaultdict(list)
    for work in process.works:
        if work.loader is not None:
            own[work.loader, work.iteration].append(work)
    for key, works in own.items():
        batches = tuple(Made(0, work, None, None) for work in works)
        made.setdefault(key, Production(0, {m.work.task: m for m in batches}, (batches,)))
    return made


def _by_workers(process: Process, all_processes: Sequence[Process]) -> dict[tuple[int, int], Production]:
    workers: defaultdict[int, list[Process]] = defaultdict(list)
    for other in all_processes:
        if other.worker and other.host == process.host:
            workers[other.pid].append(other)
    epochs = {(epoch.loader, epoch.epoch): epoch for epoch in process.epochs}
    receipts: defaultdict[tuple[int, int], dict[int, Received]] = defaultdict(dict)
    for receipt in process.receipts:
        receipts[receipt.loader, receipt.epoch][receipt.task] = receipt
    seen: defaultdict[int, int] = defaultdict(int)
    sorted_out: dict[int, dict[int, tuple[list[Work], dict[int, Sent]]]] = {}
    found: dict[tuple[int, int], Production] = {}
    for crew in process.crews:
        key = (crew.loader, crew.epoch)
        epoch = epochs.get(key)
        members: list[tuple[Made, ...]] = []
        for place, pid in enumerate(crew.pids):
            # A pid may be used again: the crew's worker is the youngest that began before its epoch ended.
            end_ns = None if epoch is None else epoch.end_ns
            born = [w for w in workers[pid] if end_ns is None or w.start_ns < end_ns]
            if not born:
                members.append(())
                continue
            worker = max(born, key=lambda w: w.start_ns)
            iteration = seen[id(worker)]
            seen[id(worker)] += 1
            if id(worker) not in sorted_out:
                sorted_out[id(worker)] = _by_iteration(worker)
            works, sents = sorted_out[id(worker)].get(iteration, ([], {}))
            members.append(tuple(Made(place, w, sents.get(w.task), receipts[key].get(w.task)) for w in works))
        by_task = {made.work.task: made for member in members for made in member}
        pacing = frozenset(place for place, works in enumerate(members) if _sets_the_pace(works))
        found[key] = Production(len(crew.pids), by_task, tuple(members), pacing)
    return found


def _sets_the_pace(works: Sequence[Made]) -> bool:
    if len(works) < _FEWEST_TO_PACE:
        return False
    busy_ns = sum(made.work.done_ns - made.work.begin_ns for made in works)
    return busy_ns >= _HARDLY_IDLE * (works[-1].work.done_ns - works[0].work.begin_ns)


def _by_iteration(worker: Process) -> dict[int, tuple[list[Work], dict[int, Sent]]]:
    """What a worker made and sent, each time its loader started over; failed work made nothing."""
    found: dict[int, tuple[list[Work], dict[int, Sent]]] = {}
    for work in worker.works:
        if not work.failed:
            found.setdefault(work.iteration, ([], {}))[0].append(work)
    for sent in worker.sents:
        found.setdefault(sent.iteration, ([], {}))[1][sent.task] = sent
    return found
