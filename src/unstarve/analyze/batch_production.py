"""Processes → how each batch was made: which worker, from when to when, and what it cost."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

from unstarve.analyze.timeline import Timeline, timelines_of
from unstarve.model import Batch, Cause, Process, Received, Run, Sent, Work

_HARDLY_IDLE = 0.75
"""A worker that is busy for at least this share of the time sets the pace."""
_FEWEST_TO_PACE = 4
MOST_AHEAD = 16
"""Tasks per worker that may be in progress: more than any sensible ``prefetch_factor``."""

Workers = Mapping[tuple[str, int], Sequence[Process]]
"""By host and pid; a pid may be reused, so all its processes are listed, oldest first."""


@dataclass(frozen=True, slots=True)
class MadeBatch:
    """How one batch was made, from the start of its fetch to the training process."""

    worker: int
    """Number of the worker in its loader; 0 when the training process made the batch itself."""
    work: Work
    sent: Sent | None
    received: Received | None


class Worked(NamedTuple):
    """How busy one worker was in an epoch."""

    number: int
    """Of batches."""
    busy_ns: int
    span_ns: int
    """From its first batch to its last."""


class Examples:
    """The batches of one loader that were kept one by one, in all epochs, in the order of time."""

    def __init__(self, batches: Sequence[Batch], made: Mapping[tuple[int, int], EpochProduction]) -> None:
        self.batches = batches
        self.made = made
        self.sums: Any = None
        """Where `blame` keeps what it has found out about them."""


@dataclass(frozen=True)
class EpochProduction:
    """All batches of one epoch of one loader."""

    workers: int
    """0 when the training process made them itself."""
    by_task: dict[int, MadeBatch]
    by_worker: tuple[tuple[MadeBatch, ...], ...]
    """Per worker, in order of time."""
    pacing: frozenset[int] = frozenset()
    """Numbers of the workers that were hardly ever idle and so set the pace."""
    thinned: tuple[tuple[Work, ...], ...] = ()
    """Per worker, of a long run: batches that were not kept one by one."""
    examples: Examples | None = None
    """Of a long run: batches of the loader that were kept, and stand for those that were not."""

    @cached_property
    def worked(self) -> list[Worked]:
        """Per worker, with the batches that were not kept one by one."""
        others = self.thinned or ((),) * len(self.by_worker)
        return [
            _worked([*(made.work for made in works), *rest])
            for works, rest in zip(self.by_worker, others, strict=True)
        ]

    @cached_property
    def blamed(self) -> dict[tuple[int, int], dict[Cause, float]]:
        """What `blame` has found out, by position and time of the request."""
        return {}

    @cached_property
    def busy_ns(self) -> Callable[[int], float]:
        """Total working time of all workers up to a moment."""
        works = [made.work for member in self.by_worker for made in member]
        begun, done = _since([work.begin_ns for work in works]), _since([work.done_ns for work in works])
        return lambda at_ns: begun(at_ns) - done(at_ns)

    def queueing_share(self, begin_ns: int, end_ns: int) -> float:
        """The share of a time in which a thread that wants a core waits for it: that of the busy workers."""
        queued_ns = self._queued_ns(end_ns) - self._queued_ns(begin_ns)
        wanted_ns = queued_ns + self._running_ns(end_ns) - self._running_ns(begin_ns)
        return queued_ns / max(wanted_ns, end_ns - begin_ns, 1)

    @cached_property
    def _queued_ns(self) -> Callable[[int], float]:
        return self._spent(lambda work: (work.queued_ns or 0) + (work.collate_queued_ns or 0))

    @cached_property
    def _running_ns(self) -> Callable[[int], float]:
        return self._spent(lambda work: work.cpu_ns + work.collate_cpu_ns)

    def _spent(self, part_ns: Callable[[Work], int]) -> Callable[[int], float]:
        """Total of a part of all works up to a moment, spread evenly over each work."""
        works = [made.work for member in self.by_worker for made in member]
        rates = [min(part_ns(w) / max(w.done_ns - w.begin_ns, 1), 1.0) for w in works]
        begun = _since([work.begin_ns for work in works], rates)
        done = _since([work.done_ns for work in works], rates)
        return lambda at_ns: begun(at_ns) - done(at_ns)

    @cached_property
    def earliest_later_ns(self) -> Mapping[int, int]:
        """By task: when the first of the later tasks that may run beside it was done."""
        reach = MOST_AHEAD * self.workers
        found: dict[int, int] = {}
        ahead: deque[tuple[int, int]] = deque()  # later tasks: the later, the earlier they were done
        for task in sorted(self.by_task, reverse=True):
            while ahead and ahead[-1][0] > task + reach:
                ahead.pop()
            if ahead:
                found[task] = ahead[-1][1]
            done_ns = self.by_task[task].work.done_ns
            while ahead and ahead[0][1] >= done_ns:
                ahead.popleft()
            ahead.appendleft((task, done_ns))
        return found


@dataclass(frozen=True, slots=True)
class RecordedTraining:
    """One training process: what its training thread did, and how its batches were made."""

    timeline: Timeline
    productions: Mapping[tuple[int, int], EpochProduction]
    """By loader and epoch."""


def recorded_trainings(run: Run, warmup_steps: int) -> list[RecordedTraining]:
    """The processes that train and received batches."""
    workers = workers_of(run.processes)
    return [
        RecordedTraining(timeline, productions(timeline.process, workers))
        for timeline in timelines_of(run, warmup_steps)
    ]


def _since(moments: Sequence[int], rates: Sequence[float] | None = None) -> Callable[[int], float]:
    """A function of time: the sum of the time passed since each earlier moment, each times its rate."""
    ordered = sorted(zip(moments, rates or [1] * len(moments), strict=True))
    first_ns = ordered[0][0] if ordered else 0  # sums of small numbers stay exact
    total_rates = list(accumulate((rate for _, rate in ordered), initial=0.0))
    sums = list(accumulate(((moment - first_ns) * rate for moment, rate in ordered), initial=0.0))
    times = [moment for moment, _ in ordered]

    def passed(at_ns: int) -> float:
        before = bisect_left(times, at_ns)
        return total_rates[before] * (at_ns - first_ns) - sums[before]

    return passed


def workers_of(processes: Iterable[Process]) -> Workers:
    """The workers among the processes of a run."""
    found: defaultdict[tuple[str, int], list[Process]] = defaultdict(list)
    for process in sorted((p for p in processes if p.worker), key=lambda p: p.start_ns):
        found[process.host, process.pid].append(process)
    return found


def productions(process: Process, workers: Workers) -> dict[tuple[int, int], EpochProduction]:
    """How the batches of a training process were made, by (loader, epoch), as far as recorded."""
    made = _by_workers(process, workers)
    own: defaultdict[tuple[int, int], list[Work]] = defaultdict(list)
    for work in process.works:
        if work.loader is not None:
            own[work.loader, work.iteration].append(work)
    for key, works in own.items():
        single, thinned = _apart(works)
        batches = tuple(MadeBatch(0, work, None, None) for work in single)
        made.setdefault(
            key, EpochProduction(0, {m.work.task: m for m in batches}, (batches,), thinned=(thinned,))
        )
    return _with_examples(process, made)


def _with_examples(
    process: Process, made: dict[tuple[int, int], EpochProduction]
) -> dict[tuple[int, int], EpochProduction]:
    """Of a long run, the same with examples for the batches that were not kept."""
    thinned = {batch.loader for batch in process.batches if batch.thinned is not None}
    by_loader: defaultdict[int, list[Batch]] = defaultdict(list)
    for batch in process.batches:
        if batch.loader in thinned and batch.thinned is None and batch.position > 0:
            by_loader[batch.loader].append(batch)
    examples = {loader: Examples(batches, made) for loader, batches in by_loader.items()}
    return (
        {key: replace(one, examples=examples.get(key[0])) for key, one in made.items()} if examples else made
    )


def _by_workers(process: Process, workers: Workers) -> dict[tuple[int, int], EpochProduction]:
    epochs = {(epoch.loader, epoch.epoch): epoch for epoch in process.epochs}
    receipts: defaultdict[tuple[int, int], dict[int, Received]] = defaultdict(dict)
    for receipt in process.receipts:
        receipts[receipt.loader, receipt.epoch][receipt.task] = receipt
    seen: defaultdict[int, int] = defaultdict(int)
    sorted_out: dict[int, dict[int, tuple[list[Work], dict[int, Sent]]]] = {}
    found: dict[tuple[int, int], EpochProduction] = {}
    for crew in process.crews:
        key = (crew.loader, crew.epoch)
        epoch = epochs.get(key)
        members: list[tuple[MadeBatch, ...]] = []
        thinned: list[tuple[Work, ...]] = [()] * len(crew.pids)
        pacing = set[int]()
        for place, pid in enumerate(crew.pids):
            # A pid may be reused: the right process is the last that started before the epoch ended.
            born = workers.get((process.host, pid), ())
            count = len(born)
            if epoch is not None and epoch.end_ns is not None:
                count = bisect_left(born, epoch.end_ns, key=lambda w: w.start_ns)
            if not count:
                members.append(())
                continue
            worker = born[count - 1]
            iteration = seen[id(worker)]
            seen[id(worker)] += 1
            if id(worker) not in sorted_out:
                sorted_out[id(worker)] = _by_iteration(worker)
            works, sents = sorted_out[id(worker)].get(iteration, ([], {}))
            if _sets_the_pace(_worked(works)):
                pacing.add(place)
            works, thinned[place] = _apart(works)
            members.append(
                tuple(MadeBatch(place, w, sents.get(w.task), receipts[key].get(w.task)) for w in works)
            )
        by_task = {made.work.task: made for member in members for made in member}
        found[key] = EpochProduction(
            len(crew.pids), by_task, tuple(members), frozenset(pacing), tuple(thinned)
        )
    return found


def _apart(works: Sequence[Work]) -> tuple[list[Work], tuple[Work, ...]]:
    """Those kept one by one, and the others."""
    return [w for w in works if w.weight == 1], tuple(w for w in works if w.weight > 1)


def _worked(works: Sequence[Work]) -> Worked:
    span_ns = max(w.done_ns for w in works) - min(w.begin_ns for w in works) if works else 0
    return Worked(sum(w.weight for w in works), sum(w.done_ns - w.begin_ns for w in works), span_ns)


def _sets_the_pace(worked: Worked) -> bool:
    return worked.number >= _FEWEST_TO_PACE and worked.busy_ns >= _HARDLY_IDLE * worked.span_ns


def _by_iteration(worker: Process) -> dict[int, tuple[list[Work], dict[int, Sent]]]:
    """What a worker made and sent, by iteration of its loader; failed work is left out."""
    found: dict[int, tuple[list[Work], dict[int, Sent]]] = {}
    single, thinned = _apart(worker.works)
    for work in (*_outermost(single), *thinned):
        if not work.failed:
            found.setdefault(work.iteration, ([], {}))[0].append(work)
    for sent in worker.sents:
        found.setdefault(sent.iteration, ([], {}))[1][sent.task] = sent
    return found


def _outermost(works: Sequence[Work]) -> list[Work]:
    """Work that is not nested: a fetch inside another fetch is part of it."""
    kept: list[Work] = []
    for work in works:
        while kept and kept[-1].begin_ns >= work.begin_ns:
            kept.pop()
        if not kept or kept[-1].done_ns <= work.begin_ns:
            kept.append(work)
    return kept
