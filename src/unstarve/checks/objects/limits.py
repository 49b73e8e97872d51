"""Batches in flight against the limits of the machine: shared memory, memory, open files."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.multiprocessing
from torch.utils.data import DataLoader

from unstarve import machine, words
from unstarve.checks.objects.batch_values import batch_bytes, tensors
from unstarve.checks.objects.loader_parts import report, set_to, start_method
from unstarve.checks.objects.pickling import pickled_bytes
from unstarve.checks.objects.subject import Subject
from unstarve.model.finding import Finding

_SHARED_MEMORY = Path("/dev/shm")  # where torch puts the batches of workers


@dataclass(frozen=True, slots=True)
class InFlight:
    """What the loaders of all ranks on this machine hold when their workers are ahead of training."""

    batch_bytes: int
    """Of the largest batch seen."""
    batches: int
    """Per rank: `prefetch_factor` for each worker, and the one in use."""
    ranks: int

    @property
    def bytes(self) -> int:
        return self.batch_bytes * self.batches * self.ranks

    def __str__(self) -> str:
        """``13 batches of 1.2 GB``."""
        of_ranks = f" on each of {self.ranks} ranks" if self.ranks > 1 else ""
        return f"{self.batches} batches of {words.size(self.batch_bytes)}{of_ranks}"


def in_flight(subject: Subject) -> InFlight | None:
    """None without workers, without a batch, or where unstarve's own hand-off is used."""
    loader = subject.loader
    if loader.num_workers == 0 or not subject.batches or not _is_handed_off_by_torch(loader):
        return None
    largest = max(batch_bytes(batch) for batch in subject.batches)
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1") or 1)
    return InFlight(largest, loader.num_workers * (loader.prefetch_factor or 2) + 1, ranks)


def _is_handed_off_by_torch(loader: DataLoader[Any]) -> bool:
    return not any(kind.__module__.startswith("unstarve.") for kind in type(loader).__mro__)


def shm_full(subject: Subject) -> Iterator[Finding]:
    """Batches in flight that do not fit into /dev/shm."""
    flying = in_flight(subject)
    try:
        space = os.statvfs(_SHARED_MEMORY)
    except OSError:
        return
    if flying is None:
        return
    kept = sum(batch_bytes(batch) for batch in subject.batches if _is_shared(batch))
    free = space.f_bavail * space.f_frsize + kept  # the batches looked at are there, too, and will go
    if flying.bytes > free:
        yield report(
            subject,
            "shm-full",
            f"{flying} make {words.size(flying.bytes)}, and /dev/shm has {words.size(free)} free.",
            f"{_smaller(subject, flying, free)}Or enlarge /dev/shm:"
            f" docker run --shm-size={_gigabytes(flying.bytes * 1.25)}g",
            harm=1.0,
        )


def _is_shared(batch: Any) -> bool:
    return any(bool(tensor.is_shared()) for tensor in tensors(batch))  # type: ignore[no-untyped-call]  # untyped in torch


def _smaller(subject: Subject, flying: InFlight, free: int) -> str:
    """Settings that fit; empty where not even one worker with one batch does."""
    fitting = int(free // (flying.batch_bytes * flying.ranks)) - 1
    workers = min(subject.loader.num_workers, fitting)
    if workers < 1:
        return ""
    change = set_to(subject, num_workers=workers, prefetch_factor=max(1, fitting // workers))
    return f"{change}. "


def _gigabytes(count: float) -> int:
    return max(1, -int(-count // 1024**3))


def memory_limit(subject: Subject) -> Iterator[Finding]:
    """Batches in flight, and copies of the dataset where workers do not fork, that exceed the memory."""
    flying = in_flight(subject)
    if flying is None:
        return
    loader, copies = subject.loader, 0
    if start_method(loader) != "fork":
        copy = pickled_bytes(loader.dataset)
        copies = copy * loader.num_workers * flying.ranks if isinstance(copy, int) else 0
    free, needed = machine.available_bytes(), flying.bytes + copies
    if needed > free:
        also = f" and {loader.num_workers * flying.ranks} copies of {subject.dataset_name}" if copies else ""
        yield report(
            subject,
            "memory-limit",
            f"{flying}{also} make {words.size(needed)}, and {words.size(free)} of memory are free.",
            _smaller(subject, flying, free - copies) or "Make batches smaller, or use fewer workers.",
            harm=1.0,
        )


def descriptors(subject: Subject) -> Iterator[Finding]:
    """More tensors in flight than a process may have open files.

    A worker keeps one descriptor for each tensor that training has not yet received, so for `prefetch_factor`
    batches; training keeps one for each tensor of the batch in use and of the next.
    """
    loader = subject.loader
    strategy = torch.multiprocessing.get_sharing_strategy()  # type: ignore[no-untyped-call]  # untyped in torch
    if in_flight(subject) is None or strategy != "file_descriptor":
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        in_use = sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:
        return
    count = max(len(tensors(batch)) for batch in subject.batches)
    batches = max(loader.prefetch_factor or 2, 2)
    if limit != resource.RLIM_INFINITY and in_use + count * batches > limit:
        yield report(
            subject,
            "descriptors",
            f"{batches} batches of {count:,} tensors need {count * batches:,} file descriptors at a time;"
            f" {in_use:,} of {limit:,} are in use.",
            "Pack the tensors of a batch into a few large ones, or at the top of the script:\n"
            'torch.multiprocessing.set_sharing_strategy("file_system")',
            harm=1.0,
        )
