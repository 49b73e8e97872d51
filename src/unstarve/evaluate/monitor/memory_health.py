"""What a monitored loader can tell of memory by itself: kept batches, shared memory, file descriptors.

A few times a second a batch is watched, and every second two numbers are read. Judged as in a recorded run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from unstarve.analyze.memory_growth import trend_by_batch
from unstarve.checks.evidence.kept import growth_text, kept_findings
from unstarve.checks.evidence.watermarks import descriptor_findings, shm_findings
from unstarve.collect.memory.kept_batches import KeptBatches
from unstarve.collect.memory.memory_look import descriptor_limit, open_descriptors
from unstarve.collect.process_pulse import shared_memory
from unstarve.model import Trend
from unstarve.model.finding import Finding
from unstarve.model.memory_looks import KeptTensor

_WATCH_NS = 100_000_000
_LOOK_NS = 1_000_000_000
_MOST_LOOKS = 128
"""When there are more, every second one is dropped, and looks become half as frequent."""

Look = tuple[int, int, int, int]
"""Batches so far, time in nanoseconds, open descriptors, bytes in /dev/shm."""


class MemoryHealth:
    """Watches the batches of one loader in the process that trains."""

    def __init__(self, loader: str, *, from_workers: bool, every_ns: int = _LOOK_NS) -> None:
        self._loader = loader
        self._from_workers = from_workers
        self._kept = KeptBatches()
        self._parts: list[KeptTensor] = []
        self._looks: list[Look] = []
        self._every_ns = every_ns
        self._next_watch_ns = self._next_look_ns = 0
        self.found: dict[str, Finding] = {}
        """By id: what was first seen."""

    def note(self, batch: Any, batches: int, now_ns: int) -> list[Finding]:
        """A batch was delivered, the `batches`-th one: return what is newly found."""
        if now_ns < self._next_watch_ns:
            return []
        self._next_watch_ns = now_ns + min(_WATCH_NS, self._every_ns)
        self._kept.note(batch)
        if now_ns < self._next_look_ns:
            return []
        self._next_look_ns = now_ns + self._every_ns
        self._looks.append((batches, now_ns, open_descriptors(), shared_memory()[0]))
        if len(self._looks) > _MOST_LOOKS:
            del self._looks[1::2]
            self._every_ns *= 2
        new = [one for one in self._findings() if one.id not in self.found]
        self.found |= {one.id: one for one in new}
        return new

    def _findings(self) -> Iterator[Finding]:
        parts = self._kept.new_most()
        if parts is not None:
            self._parts = [KeptTensor(0, *part) for part in parts]
        descriptors, shm = self._trend(2), self._trend(3)
        grows = growth_text(shm, descriptors)
        yield from kept_findings(self._loader, self._parts, grows, from_workers=self._from_workers)
        per_s = self._batches_per_s()
        opened, limit = self._column(2), descriptor_limit()
        if opened and limit > 0:
            yield from descriptor_findings(descriptors, opened, limit, per_s)
        used, total = self._column(3), shared_memory()[1]
        if used and total > 0:
            yield from shm_findings(shm, used, total, per_s)

    def _column(self, place: int) -> Sequence[int]:
        return [look[place] for look in self._looks if look[place] >= 0]

    def _trend(self, place: int) -> Trend | None:
        points = [(float(look[0]), float(look[place])) for look in self._looks if look[place] >= 0]
        return trend_by_batch(points, (self._looks[-1][1] - self._looks[0][1]) / 1e9)

    def _batches_per_s(self) -> float | None:
        first, last = self._looks[0], self._looks[-1]
        return (last[0] - first[0]) * 1e9 / (last[1] - first[1]) if last[1] > first[1] else None
