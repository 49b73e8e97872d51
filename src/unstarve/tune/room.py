"""What memory a setting takes, and what there is."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import psutil
import torch

from unstarve.machine import available_bytes
from unstarve.model import LoaderSettings

_SHARE = 0.8
"""Of what is free, that may be taken when no limit is given."""
_FLOOR_SHARE = 0.05
"""Of all memory, or twice that of what is free at first: with less than this left, loading takes less."""
_UNSEEN_WORKER_BYTES = 100 << 20
"""What a worker takes that nobody has seen yet: an interpreter with torch, mostly shared when forked."""
_MOST_ITEMS = 10_000


@dataclass(frozen=True, slots=True)
class Room:
    """How much more memory may be taken than when it was looked at, and what a setting takes."""

    free_bytes: int
    """For all that loading takes."""
    shm_free_bytes: int | None
    """In /dev/shm, where torch's workers put their batches; None where they do not."""
    batch_bytes: int | None = None
    worker_bytes: int | None = None
    """What one worker has for itself."""

    def fits(self, settings: LoaderSettings) -> bool:
        """Whether a setting stays within; a setting without workers always does."""
        if settings.num_workers == 0:
            return True
        if settings.images:  # threads: what they make is memory of the training process
            return (self.batch_bytes or 0) * (settings.in_flight + settings.num_workers) <= self.free_bytes
        under_way = self.under_way_bytes(settings)
        if self.shm_free_bytes is not None and under_way > self.shm_free_bytes:
            return False
        worker = _UNSEEN_WORKER_BYTES if self.worker_bytes is None else self.worker_bytes
        return under_way + settings.num_workers * worker <= self.free_bytes

    def under_way_bytes(self, settings: LoaderSettings) -> int:
        """Shared memory that batches under way take, at most; a worker holds the one it makes, too."""
        if settings.images:
            return 0
        return (self.batch_bytes or 0) * (settings.in_flight + settings.num_workers)

    def with_batch(self, batch: Any) -> Room:
        """Know how large a batch is."""
        return replace(self, batch_bytes=max(batch_bytes(batch), self.batch_bytes or 0))

    def with_worker(self, pid: int) -> Room:
        """Know how much a worker takes, as one is there."""
        size = own_bytes(pid)
        return self if size is None else replace(self, worker_bytes=max(size, self.worker_bytes or 0))


class Memory:
    """The room that is known of now; while it is not, everything fits."""

    def __init__(self) -> None:
        self.room: Room | None = None

    def fits(self, settings: LoaderSettings) -> bool:
        """Whether there is room for a setting."""
        return self.room is None or self.room.fits(settings)

    def know_worker(self, pid: int) -> None:
        """Look at one of the workers."""
        if self.room is not None:
            self.room = self.room.with_worker(pid)


def look_around(limit_bytes: int | None, *, uses_shm: bool = True) -> Room:
    """How much there is now: what the user allows, or a safe share of what is free."""
    free = int(available_bytes() * _SHARE) if limit_bytes is None else limit_bytes
    try:
        shm = int(shutil.disk_usage("/dev/shm").free * _SHARE)
    except OSError:  # not on this system
        return Room(free, None)
    return Room(free, shm if uses_shm else None)


class MemoryGauge:
    """Tells when the machine, or the container, is about to run out of memory."""

    def __init__(self) -> None:
        total = psutil.virtual_memory().total
        self._floor_bytes = min(_FLOOR_SHARE * total, _FLOOR_SHARE * 2 * available_bytes())

    def is_short(self) -> bool:
        """Whether much less is left than when training began."""
        return available_bytes() < self._floor_bytes


def smaller(settings: LoaderSettings, own: LoaderSettings) -> LoaderSettings:
    """The next smaller setting, less deep first; the same when it is no larger than the user's own."""
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
    """Bytes of all tensors and arrays in it."""
    total = seen = 0
    pending = [batch]
    while pending and seen < _MOST_ITEMS:
        item = pending.pop()
        seen += 1
        if isinstance(item, (torch.Tensor, np.ndarray)):
            total += item.nbytes
        elif isinstance(item, Mapping):
            pending.extend(item.values())
        elif isinstance(item, (list, tuple)):
            pending.extend(item)
    return total


def on_accelerator(batch: Any) -> bool:
    """Whether the dataset itself makes tensors on a device: forked workers could not."""
    seen = 0
    pending = [batch]
    while pending and seen < _MOST_ITEMS:
        item = pending.pop()
        seen += 1
        if isinstance(item, torch.Tensor) and not item.is_cpu:
            return True
        if isinstance(item, (Mapping, list, tuple)):
            pending.extend(item.values() if isinstance(item, Mapping) else item)
    return False


def own_bytes(pid: int) -> int | None:
    """Memory that a process shares with nobody; None where that cannot be told."""
    try:
        return int(psutil.Process(pid).memory_full_info().uss)
    except (psutil.Error, OSError, AttributeError):  # gone, not ours to ask, not told on this system
        return None
