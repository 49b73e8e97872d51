"""What torch.profiler saw of a GPU: when it worked, and when it had nothing to do while training waited."""

from __future__ import annotations

import itertools
import json
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

Span = tuple[int, int]
"""Begin and end, in nanoseconds."""


def device_work(profiler: Any, stream: int | None = None) -> Iterator[Span]:
    """Return the times, in nanoseconds since 1970, of everything that ran on the device, or on one stream."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        trace = json.loads(path.read_text())
    base = int(trace.get("baseTimeNanoseconds", 0))
    for event in trace["traceEvents"]:
        ran = event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
        if ran and stream in (None, event["args"]["stream"]):
            begin = base + round(event["ts"] * 1e3)
            yield begin, begin + round(event["dur"] * 1e3)


def merged(work: Iterable[Span], begin: int, end: int) -> list[Span]:
    """Return the union of what lies between `begin` and `end`, in order."""
    union: list[Span] = []
    inside = ((max(a, begin), min(b, end)) for a, b in work)
    for a, b in sorted((a, b) for a, b in inside if a < b):
        if union and a <= union[-1][1]:
            union[-1] = (union[-1][0], max(b, union[-1][1]))
        else:
            union.append((a, b))
    return union


def idle_gaps(busy: Sequence[Span]) -> list[Span]:
    return [(before[1], after[0]) for before, after in itertools.pairwise(busy)]


def idle_in_waits(busy: Sequence[Span], waits: Sequence[Span]) -> Iterator[tuple[Span, int]]:
    """Return every gap, and how much of it lies inside waits, which are in order."""
    at = 0
    for gap in idle_gaps(busy):
        while at < len(waits) and waits[at][1] <= gap[0]:
            at += 1
        yield gap, sum(_shared_ns(gap, wait) for wait in waits[at : at + 4])


def starved_ns(busy: Sequence[Span], waits: Sequence[Span]) -> int:
    """Return for how long the device was idle inside the waits; both are in order, without overlap."""
    begins, ends = [a for a, _ in busy], [b for _, b in busy]
    starved = 0
    for begin, end in waits:
        touched = busy[bisect_right(ends, begin) : bisect_left(begins, end)]
        starved += end - begin - sum(_shared_ns(work, (begin, end)) for work in touched)
    return starved


def _shared_ns(one: Span, other: Span) -> int:
    return max(0, min(one[1], other[1]) - max(one[0], other[0]))
