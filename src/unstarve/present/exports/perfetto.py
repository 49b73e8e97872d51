"""`Views` → a trace in the Trace Event Format, for ui.perfetto.dev and chrome://tracing.

One track per lane; queue depth and memory as counters; an arrow from a worker's fetch of a batch to the step
that used it. Times are in microseconds, as the format requires.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from unstarve.model import BatchStory, Diagnosis, Doing, Lane, LaneKind, LaneSpan, Views

_PROCESS = 1


def trace(diagnosis: Diagnosis, views: Views | None) -> dict[str, Any]:
    """The trace as a JSON object; a run without batches gives an empty one."""
    events = [] if views is None else list(_events(diagnosis, views))
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "command": " ".join(diagnosis.command),
            "verdict": diagnosis.verdict.headline,
            "recorded_by": f"unstarve {diagnosis.versions.get('unstarve', '')}".strip(),
        },
    }


def _events(diagnosis: Diagnosis, views: Views) -> Iterator[dict[str, Any]]:
    rank = "" if views.rank is None else f" rank {views.rank}"
    yield _named("process_name", 0, f"{' '.join(diagnosis.command)}{rank}")
    for track, lane in enumerate(views.lanes, 1):
        yield _named("thread_name", track, lane.name)
        yield {**_at("M", track), "name": "thread_sort_index", "args": {"sort_index": track}}
        for span in lane.spans:
            yield _span(span, track, views)
        yield from _arrows(lane, track)
    for story in views.batches:
        if story.ready is not None:
            ready = {"ready": story.ready}
            yield {**_at("C", 0), "name": "queue depth", "ts": _us(story.ask_s), "args": ready}
    for line in diagnosis.memory.lines if diagnosis.memory else ():
        for at_s, count in zip(line.at_s, line.bytes, strict=True):
            yield {**_at("C", 0), "name": f"memory: {line.name}", "ts": _us(at_s), "args": {"bytes": count}}
    for border in views.epochs:
        name = f"{border.loader}: epoch {border.epoch}"
        yield {**_at("i", 1), "name": name, "ts": _us(border.begin_s), "s": "p"}


def _span(span: LaneSpan, track: int, views: Views) -> dict[str, Any]:
    event: dict[str, Any] = {
        **_at("X", track),
        "name": span.doing.value,
        "cat": views.lanes[track - 1].kind.value,
        "ts": _us(span.begin_s),
        "dur": round((span.end_s - span.begin_s) * 1e6, 3),
    }
    if span.batch is not None:
        event["args"] = _told(views.batches[span.batch])
    return event


def _told(story: BatchStory) -> dict[str, Any]:
    told: dict[str, Any] = {"loader": story.loader, "epoch": story.epoch, "batch": story.position}
    told["wait_ms"] = round((story.got_s - story.ask_s) * 1e3, 3)
    told |= {f"wait_{cause.value}_ms": round(s * 1e3, 3) for cause, s in story.causes.items() if s > 0}
    known = {"worker": story.worker, "ready": story.ready, "samples": story.size}
    return told | {name: value for name, value in known.items() if value is not None}


def _arrows(lane: Lane, track: int) -> Iterator[dict[str, Any]]:
    """Arrows bind to the span at their time: they start in the fetch and end where the step begins."""
    if lane.kind is LaneKind.WORKER:
        for span in lane.spans:
            if span.doing is Doing.FETCH and span.batch is not None:
                yield {**_arrow("s", track, span.batch), "ts": _us(span.begin_s)}
    elif lane.kind is LaneKind.MAIN:
        used = set()
        for span in lane.spans:
            if span.doing is Doing.STEP and span.batch is not None and span.batch not in used:
                used.add(span.batch)
                yield {**_arrow("f", track, span.batch), "ts": _us(span.begin_s), "bp": "e"}


def _arrow(phase: str, track: int, batch: int) -> dict[str, Any]:
    return {**_at(phase, track), "name": "batch", "cat": "batch", "id": batch}


def _named(what: str, track: int, name: str) -> dict[str, Any]:
    return {**_at("M", track), "name": what, "args": {"name": name}}


def _at(phase: str, track: int) -> dict[str, Any]:
    return {"ph": phase, "pid": _PROCESS, "tid": track}


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)
