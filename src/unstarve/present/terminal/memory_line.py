"""The memory of a run in a line or two."""

from __future__ import annotations

from collections.abc import Iterator

from unstarve.model import MemorySummary
from unstarve.words import percent, size, workers

_SHORT_OF_MEMORY = 0.05
"""Share of the time in which processes waited for memory, from which that is worth a line."""


def memory_lines(memory: MemorySummary | None) -> Iterator[tuple[str, str]]:
    """Label and text: the peaks; how short of memory the machine was, where it was."""
    if memory is None:
        return
    parts = []
    if memory.training_peak_bytes is not None:
        parts.append(f"training {size(memory.training_peak_bytes)}")
    if memory.workers_peak_bytes is not None and memory.workers_most:
        shared = ""
        if memory.workers_uss_peak_bytes is not None:
            bytes_shared = max(memory.workers_peak_bytes - memory.workers_uss_peak_bytes, 0)
            shared = f" of which {size(bytes_shared)} are shared"
        parts.append(f"{workers(memory.workers_most)} {size(memory.workers_peak_bytes)}{shared}")
    if memory.workers_most and memory.shm_peak_bytes is not None and memory.shm_total_bytes:
        parts.append(f"/dev/shm {size(memory.shm_peak_bytes)} of {size(memory.shm_total_bytes)}")
    if parts:
        yield "memory", ", ".join(parts)
    pressure = None if memory.pressure is None else memory.pressure.waiting_share
    if pressure is not None and pressure >= _SHORT_OF_MEMORY:
        yield "short of memory", f"processes waited for it up to {percent(pressure)} of the time"
