"""When to look at the memory of this process, and everything that is looked at then.

A look walks the page tables: about 2 ms for a process with torch, more for one with gigabytes. So looks are
paced by what they cost, and become rarer in a long run, so that they do not fill its file.
"""

from __future__ import annotations

import time
from typing import Any

from unstarve.collect.memory.allocation_sites import AllocationSites
from unstarve.collect.memory.dataset_containers import DatasetContainers
from unstarve.collect.memory.kept_batches import KeptByLoader
from unstarve.collect.memory.memory_look import memory_row
from unstarve.collect.sampling.stack_sampler import LONGEST_INTERVAL_S
from unstarve.record import format as f
from unstarve.record.writer import Writer

_SHARE = 0.001
"""Of a core, for looking at memory."""
_SHARE_ON_REQUEST = 0.02
"""The same with `--memory`."""
_LEAST_S = 0.2
_PART_OF_RUN = 1 / 64
"""Of the time so far: that much passes at least between two looks."""


class MemoryWatch:
    """Looks at the memory of this process. Everything but `note_batch` runs in the stack sampler's thread."""

    def __init__(self, writer: Writer, *, training: bool, on_request: bool) -> None:
        self._writer = writer
        self._training = training
        self._share = _SHARE_ON_REQUEST if on_request else _SHARE
        self.longest_s = _LEAST_S if on_request else LONGEST_INTERVAL_S
        """How long the stack sampler may sleep: it calls `look_if_due`."""
        self._began_ns: int | None = None
        self._next_ns = 0
        self.containers = DatasetContainers()
        self._kept = KeptByLoader()
        self._sites = AllocationSites(writer.meta) if on_request else None

    def note_batch(self, loader: int, batch: Any) -> None:
        """A loader of this process has delivered a batch."""
        self._kept.note(loader, batch)

    def look_if_due(self, now_ns: int) -> float:
        """Write a row, and what else has changed, if it is time. Returns the CPU seconds it took."""
        if now_ns < self._next_ns:
            return 0.0
        if self._began_ns is None:
            self._began_ns = now_ns
        begin_ns = time.thread_time_ns()
        self._writer.row(f.MEMORY, now_ns, memory_row(now_ns, training=self._training))
        sizes = self.containers.changed()
        if sizes is not None:
            self._writer.meta("sizes", at_ns=now_ns, sizes=sizes)
        self._kept.tell(self._writer.meta)
        spent_ns = time.thread_time_ns() - begin_ns
        self._next_ns = now_ns + pause_ns(now_ns - self._began_ns, spent_ns, self._share)
        if self._sites is not None:
            self._sites.look()
        return (time.thread_time_ns() - begin_ns) / 1e9

    def close(self) -> None:
        """The recording ends."""
        if self._sites is not None:
            self._sites.close()


def pause_ns(so_far_ns: int, spent_ns: int, share: float) -> int:
    """Time until the next look."""
    return max(round(_LEAST_S * 1e9), round(so_far_ns * _PART_OF_RUN), round(spent_ns / share))
