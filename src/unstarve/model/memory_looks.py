"""What was recorded of a process's memory: a look every few seconds, and what keeps memory in use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class MemoryLook(NamedTuple):
    """One look at a process's memory; None for what the system does not tell."""

    at_ns: int
    uss_bytes: int | None
    """Memory that no other process shares: it would be free if this process ended."""
    pss_bytes: int | None
    """The same plus its part of what is shared: the sum over all processes is what they really use."""
    anonymous_bytes: int | None
    """Memory of no file, shared or not: it grows when the process allocates, not when it copies on write."""
    dirty_bytes: int | None
    """Private memory that was written to: it also grows when a forked process copies on write."""
    blocks: int | None
    """Blocks of memory that Python objects hold."""
    descriptors: int | None
    descriptor_limit: int | None
    major_faults: int | None
    """Page faults of the process that had to read from storage, so far."""
    shm_bytes: int | None = None
    """In use in /dev/shm, by anyone; training processes only, like the rest."""
    pressure: float | None = None
    """Share of the last ten seconds in which some process waited for memory."""
    refaulted_bytes: int | None = None
    """Pages of files that were dropped from the page cache and read again, so far, by anyone."""


class ContainerSizes(NamedTuple):
    """How much the containers of a dataset held."""

    at_ns: int
    sizes: Mapping[str, int]
    """Number of entries by name: ``self.cache``."""


class KeptTensor(NamedTuple):
    """A part of the batches, of which samples were watched after delivery."""

    loader: int
    part: str
    """``batch[1]``, ``batch["labels"]``."""
    kept: int
    """Still in memory many steps later."""
    watched: int
    nbytes: int
    """Of one."""


class AllocationSite(NamedTuple):
    """A line whose allocations stayed in memory while they were traced."""

    file: str
    line: int
    nbytes: int
    blocks: int


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """All of it for one process; empty in old runs."""

    looks: tuple[MemoryLook, ...] = ()
    """In the order of time."""
    sizes: tuple[ContainerSizes, ...] = ()
    """In the order of time; of the dataset in this process."""
    kept: tuple[KeptTensor, ...] = ()
    sites: tuple[AllocationSite, ...] = ()
    """The largest first; only with `unstarve run --memory`."""
    traced_s: float = 0.0
    """For how long allocations were traced."""
