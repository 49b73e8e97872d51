"""The times recorded while a loader is iterated, and the JSON document made from them."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

SCHEMA = "unstarve.log/1"

now_ns = time.perf_counter_ns
"""The clock of all logs: monotonic, so no duration is negative."""


@dataclass(slots=True)
class EpochLog:
    """One iteration over a loader: three eight-byte integers per batch."""

    mode: str
    begin_ns: int
    """``iter(loader)`` was entered: workers start from here on."""
    ready_ns: int
    """``iter(loader)`` returned."""
    batches: array[int] = field(default_factory=lambda: array("q"))
    """For each batch: when it was requested, when it arrived, its samples (−1: unknown). One array, extended
    by all three at once, because a Ctrl-C may come between two calls."""
    end_ns: int | None = None
    """When the loader was exhausted or the iterator abandoned."""
    exhausted: bool = False
    error: str | None = None
    """Type of the last exception raised by ``next()``."""

    @property
    def ask_ns(self) -> array[int]:
        return self.batches[0::3]

    @property
    def got_ns(self) -> array[int]:
        return self.batches[1::3]

    @property
    def sizes(self) -> array[int]:
        return self.batches[2::3]

    @property
    def last_ns(self) -> int:
        """The end, or the last known time of an epoch that has not ended."""
        return self.end_ns or (self.batches[-2] if self.batches else self.ready_ns)

    def load_s(self) -> list[float]:
        return [(got - ask) / 1e9 for ask, got in zip(self.ask_ns, self.got_ns, strict=True)]

    def summary(self) -> dict[str, Any]:
        """The epoch in a few numbers; times in seconds."""
        return {
            "mode": self.mode,
            "batches": len(self.batches) // 3,
            "start_s": (self.ready_ns - self.begin_ns) / 1e9,
            "load_s": sum(self.load_s()),
            "wall_s": (self.last_ns - self.begin_ns) / 1e9,
            "complete": self.exhausted,
            "error": self.error,
        }


def document(
    epochs: Sequence[EpochLog], *, mode: str, cached: int, device: str, gpu_utilization: float | None = None
) -> dict[str, Any]:
    """Return all epochs as plain data: DALI's keys and ours. Times are in seconds."""
    load_s = [seconds for epoch in epochs for seconds in epoch.load_s()]
    sizes = [size if size >= 0 else None for epoch in epochs for size in epoch.sizes]
    summaries = [epoch.summary() for epoch in epochs]
    samples = None if None in sizes else sum(size for size in sizes if size)
    wall_s = sum(summary["wall_s"] for summary in summaries)
    return {
        "schema": SCHEMA,
        "mode": mode,
        "complete": all(epoch.exhausted for epoch in epochs),
        "total_batches": len(load_s),
        "total_time": wall_s,
        "throughput": len(load_s) / wall_s if wall_s else None,
        "samples_per_s": samples / wall_s if wall_s and samples is not None else None,
        "gpu_utilization": gpu_utilization,
        "avg_batch_time": sum(load_s) / len(load_s) if load_s else None,
        "min_batch_time": min(load_s, default=None),
        "max_batch_time": max(load_s, default=None),
        "cached_batches": cached,
        "cache_ready": cached > 0,
        "device": device,
        "batch_time_is": "host time inside next()"
        + ("; the device may have been at work during it" if device != "cpu" else ""),
        "samples": samples,
        "epochs": summaries,
        "iterator_start_times": [summary["start_s"] for summary in summaries],
        "batch_times": load_s,
        "step_times": _step_s(epochs),
        "batch_sizes": sizes,
    }


def _step_s(epochs: Sequence[EpochLog]) -> list[float]:
    """Seconds from each delivered batch to the next.

    Work between two epochs (validation, a checkpoint) is left out: that step is the rest of one epoch plus
    the start of the next.
    """
    steps: list[float] = []
    before: EpochLog | None = None
    for epoch in epochs:
        got_ns = epoch.got_ns
        if not got_ns:
            continue
        if before is not None:
            rest_ns = before.last_ns - before.batches[-2]
            steps.append((rest_ns + got_ns[0] - epoch.begin_ns) / 1e9)
        steps.extend((later - earlier) / 1e9 for earlier, later in pairwise(got_ns))
        before = epoch
    return steps
