"""Whether a setting fits into memory: what workers and batches take, and what is free."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import psutil
import torch

from unstarve.machine import available_bytes
from unstarve.model import LoaderSettings

_SHARE = 0.8
"""Share of the free memory to use when no limit is given."""
_RESERVE_SHARE = 0.05
"""Loading shrinks when less is left than this share of all memory, or twice this share of what was free."""
_ASSUMED_WORKER_BYTES = 100 << 20
"""Size of a worker before one was measured: an interpreter with torch, mostly shared when forked."""
_MAX_ITEMS = 10_000
"""Parts of a batch to look at."""


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """How much memory was free for loading when it was measured, and what a setting takes of it."""

    free_bytes: int
    """For everything that loading takes."""
    shm_free_bytes: int | None
    """In /dev/shm, where torch's workers put their batches; None if they use something else."""
    batch_bytes: int | None = None
    worker_bytes: int | None = None
    """Private memory of one worker."""

    def fits(self, settings: LoaderSettings) -> bool:
        """Whether there is memory for a setting; without workers there always is."""
        if settings.num_workers == 0:
            return True
        if settings.threads:  # their batches are memory of the training process
            return (self.batch_bytes or 0) * (settings.in_flight + settings.num_workers) <= self.free_bytes
        in_flight = self.in_flight_bytes(settings)
        if self.shm_free_bytes is not None and in_flight > self.shm_free_bytes:
            return False
        worker = _ASSUMED_WORKER_BYTES if self.worker_bytes is None else self.worker_bytes
        return in_flight + settings.num_workers * worker <= self.free_bytes

    def in_flight_bytes(self, settings: LoaderSettings) -> int:
        """Most shared memory that prefetched batches take, including the one each worker is making."""
        if settings.threads:
            return 0
        return (self.batch_bytes or 0) * (settings.in_flight + settings.num_workers)

    def with_batch(self, batch: Any) -> MemoryFit:
        """Add the size of a batch."""
        return replace(self, batch_bytes=max(batch_bytes(batch), self.batch_bytes or 0))

    def with_worker(self, pid: int) -> MemoryFit:
        """Add the size of a running worker."""
        size = private_bytes(pid)
        return self if size is None else replace(self, worker_bytes=max(size, self.worker_bytes or 0))


def free_memory(limit_bytes: int | None, *, uses_shm: bool = True) -> MemoryFit:
    """Measure what loading may take: the user's limit, or a safe share of what is free."""
    free = int(available_bytes() * _SHARE) if limit_bytes is None else limit_bytes
    try:
        shm = int(shutil.disk_usage("/dev/shm").free * _SHARE)
    except OSError:  # not on this system
        return MemoryFit(free, None)
    return MemoryFit(free, shm if uses_shm else None)


class MemoryGauge:
    """Tells when the machine, or the container, is about to run out of memory."""

    def __init__(self) -> None:
        total = psutil.virtual_memory().total
        self._reserve_bytes = min(_RESERVE_SHARE * total, _RESERVE_SHARE * 2 * available_bytes())

    def is_short(self) -> bool:
        """Whether much less is left than when training began."""
        return available_bytes() < self._reserve_bytes


def smaller(settings: LoaderSettings, own: LoaderSettings) -> LoaderSettings:
    """The next smaller setting: first less prefetching, then fewer workers, never below the user's own."""
    if settings.in_flight <= own.in_flight:
        return settings
    depth = settings.prefetch_factor or 1
    if depth > 1:
        return replace(settings, prefetch_factor=depth // 2)
    if settings.num_workers > max(own.num_workers, 1):
        fewer = max(settings.num_workers // 2, own.num_workers, 1)
        return replace(settings, num_workers=fewer, prefetch_factor=1)
    return own


def batch_bytes(batch: Any) -> int:
    """Bytes of all tensors and arrays in a batch."""
    return sum(item.nbytes for item in _items(batch) if isinstance(item, (torch.Tensor, np.ndarray)))


def tensor_count(batch: Any) -> int:
    """Tensors in a batch."""
    return sum(isinstance(item, torch.Tensor) for item in _items(batch))


def is_on_accelerator(batch: Any) -> bool:
    """Whether the dataset itself makes tensors on a device, which forked workers could not do."""
    return any(isinstance(item, torch.Tensor) and not item.is_cpu for item in _items(batch))


def _items(batch: Any) -> Iterator[Any]:
    """A batch and everything in it, up to a limit."""
    pending = [batch]
    for _ in range(_MAX_ITEMS):
        if not pending:
            return
        item = pending.pop()
        yield item
        if isinstance(item, Mapping):
            pending.extend(item.values())
        elif isinstance(item, (list, tuple)):
            pending.extend(item)


def private_bytes(pid: int) -> int | None:
    """Memory that a process shares with no other; None if it cannot be read."""
    try:
        return int(psutil.Process(pid).memory_full_info().uss)
    except (psutil.Error, OSError, AttributeError):  # gone, not permitted, or not known on this system
        return None
