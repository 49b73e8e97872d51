"""The last seconds of a worker's events → what it does now, and what that takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from unstarve.analyze.blame import split_collate, split_fetch
from unstarve.model import Cause, Doing, Process, Pulse, Sent, Work, WorkerNow

_NOW_S = 1.0
_BUSY = (Doing.FETCH, Doing.COLLATE)


class Window(NamedTuple):
    """The stretch of time that is looked at."""

    begin_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9


def overlap_s(begin_ns: int, end_ns: int, window: Window) -> float:
    """How much of a span lies in the window."""
    return max(0, min(end_ns, window.end_ns) - max(begin_ns, window.begin_ns)) / 1e9


def parts_of(works: Iterable[Work], window: Window, *, in_worker: bool) -> dict[Cause, float]:
    """Seconds per cause that making batches took inside the window."""
    parts: defaultdict[Cause, float] = defaultdict(float)
    for work in works:
        whole_s = (work.done_ns - work.begin_ns) / 1e9
        inside = overlap_s(work.begin_ns, work.done_ns, window) / whole_s if whole_s > 0 else 0.0
        if inside:
            for split in (split_fetch(work), split_collate(work, in_worker=in_worker)):
                for cause, seconds in split.items():
                    parts[cause] += seconds * inside
    return {cause: seconds for cause, seconds in parts.items() if seconds > 0}


def worker_now(place: int, worker: Process, window: Window) -> WorkerNow:
    """One worker, by what it has finished and by its pulse for what it has not."""
    window = Window(max(window.begin_ns, min(worker.start_ns, window.end_ns)), window.end_ns)
    works = [w for w in worker.works if w.done_ns > window.begin_ns]
    last_ns = worker.works[-1].done_ns if worker.works else worker.start_ns
    unfinished, since_ns = _unfinished(worker.pulses, last_ns)
    parts = parts_of(works, window, in_worker=True)
    if unfinished in _BUSY:
        for cause, seconds in _meanwhile(worker.pulses, max(since_ns, window.begin_ns)).items():
            parts[cause] = parts.get(cause, 0.0) + seconds
    spans = _spans(works, worker.sents)
    # Of the moment since its last batch, if no pulse has fallen in there, it does what it mostly did.
    spans.append((unfinished or _mostly(spans, window), since_ns, window.end_ns))
    doing = _mostly(spans, Window(max(window.end_ns - round(_NOW_S * 1e9), window.begin_ns), window.end_ns))
    lasts = unfinished is not None and window.end_ns - since_ns > _NOW_S * 1e9
    whole_s = window.seconds
    newest = worker.pulses[-1] if worker.pulses else None
    return WorkerNow(
        place=place,
        pid=worker.pid,
        doing=(unfinished if lasts else doing) if works or unfinished is not None else None,
        since_s=(window.end_ns - since_ns) / 1e9 if lasts else None,
        waits_for=max(parts, key=lambda cause: parts[cause]) if parts else None,
        busy_share=min(sum(parts.values()) / whole_s, 1.0) if whole_s else None,
        parts={cause: min(seconds / whole_s, 1.0) for cause, seconds in parts.items()} if whole_s else {},
        batches_per_s=len(works) / whole_s if whole_s else None,
        rss_bytes=newest.rss_bytes if newest else None,
    )


def _unfinished(pulses: Sequence[Pulse], last_ns: int) -> tuple[Doing | None, int]:
    """What the worker is at since its last batch, by its pulse, and since when; None when nothing tells."""
    after = [p for p in pulses if p.at_ns > last_ns and p.doing is not None]
    if not after:
        return None, last_ns
    same = len(after)
    while same and after[same - 1].doing is after[-1].doing:
        same -= 1
    # What it was found at the first time it was looked at, it has been at since its last batch.
    return after[-1].doing, after[same].at_ns if same else last_ns


def _meanwhile(pulses: Sequence[Pulse], since_ns: int) -> dict[Cause, float]:
    """Seconds per cause since then, from what the worker's counters did between its pulses."""
    around = [p for p in pulses if p.at_ns > since_ns]
    before = [p for p in pulses if p.at_ns <= since_ns]
    around = before[-1:] + around
    if len(around) < 2:
        return {}
    first, last = around[0], around[-1]
    share = (last.at_ns - max(since_ns, first.at_ns)) / (last.at_ns - first.at_ns)
    split = split_fetch(_as_work(first, last))
    return {cause: seconds * share for cause, seconds in split.items() if seconds > 0}


def _as_work(first: Pulse, last: Pulse) -> Work:
    """What happened between two pulses, as if it had been one fetch."""
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


def _spans(works: Sequence[Work], sents: Sequence[Sent]) -> list[tuple[Doing, int, int]]:
    """What was finished; between two batches the worker had nothing to do but to send."""
    spans: list[tuple[Doing, int, int]] = []
    for work in works:
        if spans:
            spans.append((Doing.WAIT, spans[-1][2], work.begin_ns))
        spans.append((Doing.FETCH, work.begin_ns, work.collate_ns))
        spans.append((Doing.COLLATE, work.collate_ns, work.done_ns))
    spans += [(Doing.SEND, sent.begin_ns, sent.end_ns) for sent in sents]
    return spans


def _mostly(spans: Sequence[tuple[Doing, int, int]], window: Window) -> Doing:
    """What took most of the window."""
    seconds: defaultdict[Doing, float] = defaultdict(float)
    for doing, begin_ns, end_ns in spans:
        seconds[doing] += overlap_s(begin_ns, end_ns, window)
    # Sending goes on in a thread of its own while the worker waits, or beside its next batch.
    seconds[Doing.WAIT] -= min(seconds[Doing.SEND], seconds[Doing.WAIT])
    return max(seconds, key=lambda doing: seconds[doing])
