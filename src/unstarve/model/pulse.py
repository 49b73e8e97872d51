"""What a process looks like from the inside about once a second."""

from __future__ import annotations

from typing import NamedTuple

from unstarve.model.chart_data import Doing


class Pulse(NamedTuple):
    """One look at a process: what its watched thread does, what it has used so far, its memory.

    Counters only grow: the difference of two looks says what happened between them.
    """

    at_ns: int
    doing: Doing | None
    """In training ``wait`` or ``step``; in a worker ``wait`` (for indices), ``fetch`` or ``collate``."""
    cpu_ns: int | None
    """The watched thread was on a CPU."""
    queued_ns: int | None
    """It was runnable, but had no CPU."""
    storage_bytes: int | None
    """The process has read from storage."""
    rss_bytes: int | None
    """Resident memory; a forked worker's includes what it still shares with its parent."""
    shared_bytes: int | None
    """Of that: file mappings and shared memory."""
    shm_bytes: int | None
    """In use in the machine's /dev/shm, by anybody; told by training processes alone."""
    shm_total_bytes: int | None
