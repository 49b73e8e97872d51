"""The last seconds of a worker's events → what it does now, and where its time goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from unstarve.analyze.blame import split_collate, split_fetch
from unstarve.model import Cause, Doing, Process, Pulse, Sent, Work, WorkerNow

_NOW_S = 1.0
_BUSY = (Doing.FETCH, Doing.COLLATE)


class LiveWindow(NamedTuple):
    """The last seconds of a run."""

    begin_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9


def overlap_s(begin_ns: int, end_ns: int, window: LiveWindow) -> float:
    """How much of a span lies in the window."""
    return max(0, min(end_ns, window.end_ns) - max(begin_ns, window.begin_ns)) / 1e9


def parts_of(works: Sequence[Work], window: LiveWindow, *, in_worker: bool) -> dict[Cause, float]:
    """Seconds per cause of making batches inside the window.

    Hundreds of batches are split as if they were one, which is precise enough for a live view.
    """
    if not works:
        return {}
    whole_s = sum(work.done_ns - work.begin_ns for work in works) / 1e9
    before_s = sum(max(0, window.begin_ns - work.begin_ns) for work in works) / 1e9
    inside = max(0.0, 1 - before_s / whole_s) if whole_s > 0 else 0.0
    together = _together(works)
    parts: defaultdict[Cause, float] = defaultdict(float)
    for split in (split_fetch(together), split_collate(together, in_worker=in_worker)):
        for cause, seconds in split.items():
            parts[cause] += seconds * inside
    return {cause: seconds for cause, seconds in parts.items() if seconds > 0}


def worker_now(place: int, worker: Process, window: LiveWindow) -> WorkerNow:
    """One worker: finished work from its records, unfinished work from its pulses."""
    oldest_ns = worker.works[0].received_ns if worker.works else worker.start_ns
    window = LiveWindow(min(max(window.begin_ns, oldest_ns), window.end_ns), window.end_ns)
    works = [w for w in worker.works if w.done_ns > window.begin_ns]
    last_ns = worker.works[-1].done_ns if worker.works else worker.start_ns
    unfinished, since_ns = _unfinished(worker.pulses, last_ns)
    parts = parts_of(works, window, in_worker=True)
    if unfinished in _BUSY:
        for cause, seconds in _meanwhile(worker.pulses, max(since_ns, window.begin_ns)).items():
            parts[cause] = parts.get(cause, 0.0) + seconds
    lasts = unfinished is not None and window.end_ns - since_ns > _NOW_S * 1e9
    doing = unfinished if lasts else _mostly(works, worker.sents, unfinished, window)
    whole_s = window.seconds
    newest = worker.pulses[-1] if worker.pulses else None
    return WorkerNow(
        place=place,
        pid=worker.pid,
        doing=doing,
        since_s=(window.end_ns - since_ns) / 1e9 if lasts else None,
        waits_for=max(parts, key=lambda cause: parts[cause]) if parts else None,
        busy_share=min(sum(parts.values()) / whole_s, 1.0) if whole_s else None,
        parts={cause: min(seconds / whole_s, 1.0) for cause, seconds in parts.items()} if whole_s else {},
        batches_per_s=len(works) / whole_s if whole_s else None,
        rss_bytes=newest.rss_bytes if newest else None,
    )


def _unfinished(pulses: Sequence[Pulse], last_ns: int) -> tuple[Doing | None, int]:
    """What the worker has been doing since its last batch, by its pulses, and since when; None if unknown."""
    after = [p for p in pulses if p.at_ns > last_ns and p.doing is not None]
    if not after:
        return None, last_ns
    same = len(after)
    while same and after[same - 1].doing is after[-1].doing:
        same -= 1
    # Assume that the first activity after its last batch began right after that batch.
    return after[-1].doing, after[same].at_ns if same else last_ns


def _meanwhile(pulses: Sequence[Pulse], since_ns: int) -> dict[Cause, float]:
    """Seconds per cause since then, from the worker's counters at its pulses."""
    around = [p for p in pulses if p.at_ns > since_ns]
    before = [p for p in pulses if p.at_ns <= since_ns]
    around = before[-1:] + around
    if len(around) < 2 or around[-1].at_ns <= around[0].at_ns:
        return {}
    first, last = around[0], around[-1]
    share = (last.at_ns - max(since_ns, first.at_ns)) / (last.at_ns - first.at_ns)
    split = split_fetch(_as_work(first, last))
    return {cause: seconds * share for cause, seconds in split.items() if seconds > 0}


def _as_work(first: Pulse, last: Pulse) -> Work:
    """The time between two pulses as one fetch."""
    cpu, queued, storage = (
        None if a is None or b is None else b - a
        for a, b in (
            (first.cpu_ns, last.cpu_ns),
            (first.queued_ns, last.queued_ns),
            (first.storage_bytes, last.storage_bytes),
        )
    )
    begin, end = first.at_ns, last.at_ns
    return Work(
        loader=None, iteration=0, task=0, samples=0, received_ns=begin, begin_ns=begin, collate_ns=end,
        done_ns=end, cpu_ns=cpu or 0, system_ns=0, queued_ns=queued, asked_bytes=storage,
        storage_bytes=storage, delay_ns=None, major_faults=0, switches=0, collate_cpu_ns=0,
        collate_system_ns=0, collate_queued_ns=0, slow_index=None, slow_ns=0, opens=0, failed=False,
    )  # fmt: skip


def _together(works: Sequence[Work]) -> Work:
    """Consecutive works combined into one."""
    first = works[0]
    fetch_ns = sum(w.collate_ns - w.begin_ns for w in works)
    collate_ns = sum(w.done_ns - w.collate_ns for w in works)
    return first._replace(
        collate_ns=first.begin_ns + fetch_ns,
        done_ns=first.begin_ns + fetch_ns + collate_ns,
        cpu_ns=sum(w.cpu_ns for w in works),
        system_ns=sum(w.system_ns for w in works),
        queued_ns=_sum(w.queued_ns for w in works),
        asked_bytes=_sum(w.asked_bytes for w in works),
        storage_bytes=_sum(w.storage_bytes for w in works),
        delay_ns=_sum(w.delay_ns for w in works),
        collate_cpu_ns=sum(w.collate_cpu_ns for w in works),
        collate_system_ns=sum(w.collate_system_ns for w in works),
        collate_queued_ns=_sum(w.collate_queued_ns for w in works),
        helped_ns=sum(w.helped_ns for w in works),
    )


def _sum(values: Iterable[int | None]) -> int | None:
    """The sum; None when any value is unknown."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _mostly(
    works: Sequence[Work], sents: Sequence[Sent], unfinished: Doing | None, window: LiveWindow
) -> Doing | None:
    """What a worker mostly did in the last second; None when unknown."""
    if not works:
        return unfinished
    now = LiveWindow(max(window.end_ns - round(_NOW_S * 1e9), window.begin_ns), window.end_ns)
    last_ns = works[-1].done_ns
    # Without a pulse since its last batch, it is assumed to do what it mostly did.
    doing = unfinished or _longest(works, sents, LiveWindow(window.begin_ns, last_ns), None)
    return _longest(works, sents, now, doing)


def _longest(
    works: Sequence[Work], sents: Sequence[Sent], window: LiveWindow, since_last: Doing | None
) -> Doing:
    seconds: defaultdict[Doing, float] = defaultdict(float)
    for work in works:
        if work.done_ns > window.begin_ns:
            seconds[Doing.FETCH] += overlap_s(work.begin_ns, work.collate_ns, window)
            seconds[Doing.COLLATE] += overlap_s(work.collate_ns, work.done_ns, window)
    if since_last is not None:
        seconds[since_last] += overlap_s(works[-1].done_ns, window.end_ns, window)
    # Sending runs in its own thread while the worker waits or makes its next batch.
    rest_s = max(0.0, window.seconds - sum(seconds.values()))
    sending_s = sum(overlap_s(s.begin_ns, s.end_ns, window) for s in sents if s.end_ns > window.begin_ns)
    seconds[Doing.SEND] += min(sending_s, rest_s)
    seconds[Doing.WAIT] += rest_s - min(sending_s, rest_s)
    return max(seconds, key=lambda doing: seconds[doing])
