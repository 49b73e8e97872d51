"""What is written down while a loader is iterated, and the document made from it."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

SCHEMA = "unstarve.log/1"

now_ns = time.perf_counter_ns
"""The clock of all logs: monotonic, so that no duration is ever negative."""


@dataclass(slots=True)
class EpochLog:
    """One iteration over a loader, written to at every batch: plain integers, some eight bytes each."""

    mode: str
    begin_ns: int
    """``iter(loader)`` was entered: workers are started from here on."""
    ready_ns: int
    """``iter(loader)`` returned."""
    ask_ns: array[int] = field(default_factory=lambda: array("q"))
    got_ns: array[int] = field(default_factory=lambda: array("q"))
    sizes: list[int] = field(default_factory=list)
    """Samples per batch; −1 where unknown."""
    end_ns: int | None = None
    """The loader was exhausted, or the iterator given up."""
    exhausted: bool = False
    error: str | None = None
    """Type of the last exception that came out of ``next()``."""

    @property
    def last_ns(self) -> int:
        """The end, or the last thing known of an epoch that has none yet."""
        return self.end_ns or (self.got_ns[-1] if self.got_ns else self.ready_ns)

    def load_s(self) -> list[float]:
        return [(got - ask) / 1e9 for ask, got in zip(self.ask_ns, self.got_ns, strict=True)]

    def summary(self) -> dict[str, Any]:
        """The epoch in a few numbers; times in seconds."""
        return {
            "mode": self.mode,
            "batches": len(self.got_ns),
            "start_s": (self.ready_ns - self.begin_ns) / 1e9,
            "load_s": sum(self.load_s()),
            "wall_s": (self.last_ns - self.begin_ns) / 1e9,
            "complete": self.exhausted,
            "error": self.error,
        }


def document(epochs: Sequence[EpochLog], *, mode: str, cached: int, device: str) -> dict[str, Any]:
    """All epochs as plain data: the keys of DALI's metrics, and ours. Times are in seconds."""
    load_s = [seconds for epoch in epochs for seconds in epoch.load_s()]
    sizes = [size if size >= 0 else None for epoch in epochs for size in epoch.sizes]
    summaries = [epoch.summary() for epoch in epochs]
    return {
        "schema": SCHEMA,
        "mode": mode,
        "complete": all(epoch.exhausted for epoch in epochs),
        "total_batches": len(load_s),
        "total_time": sum(summary["wall_s"] for summary in summaries),
        "avg_batch_time": sum(load_s) / len(load_s) if load_s else None,
        "min_batch_time": min(load_s, default=None),
        "max_batch_time": max(load_s, default=None),
        "cached_batches": cached,
        "cache_ready": cached > 0,
        "device": device,
        "batch_time_is": "host time inside next()"
        + ("; the device may have been at work during it" if device != "cpu" else ""),
        "samples": None if None in sizes else sum(size for size in sizes if size),
        "epochs": summaries,
        "iterator_start_times": [summary["start_s"] for summary in summaries],
        "batch_times": load_s,
        "step_times": _step_s(epochs),
        "batch_sizes": sizes,
    }


def _step_s(epochs: Sequence[EpochLog]) -> list[float]:
    """From each delivered batch to the next.

    Between two epochs, what training does with no iterator at hand (validation, a checkpoint) is left out:
    that step is the rest of the one epoch and the start of the other.
    """
    steps: list[float] = []
    before: EpochLog | None = None
    for epoch in epochs:
        if not epoch.got_ns:
            continue
        if before is not None:
            rest_ns = before.last_ns - before.got_ns[-1]
            steps.append((rest_ns + epoch.got_ns[0] - epoch.begin_ns) / 1e9)
        steps.extend((later - earlier) / 1e9 for earlier, later in pairwise(epoch.got_ns))
        before = epoch
    return steps
