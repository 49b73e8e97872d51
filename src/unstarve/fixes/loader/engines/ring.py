"""Worker processes that hand their batches over in reused shared memory: same workers, a cheaper way out."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data._utils import worker


def plan(loader: DataLoader[Any]) -> Callable[[], Iterator[Any]] | str:
    """Return what iterates with such workers, or why they cannot stand in for torch's."""
    if loader.num_workers == 0:
        return "it has no worker processes (num_workers=0)"
    return why_not_here() or functools.partial(_iterate, loader)


def why_not_here() -> str | None:
    """Say why no loader could have such workers on this system, or with this torch."""
    if sys.platform != "linux" or not hasattr(os, "memfd_create"):
        return "shared memory without a name is a thing of Linux"
    if "data_queue" not in inspect.signature(worker._worker_loop).parameters:
        return "the worker loop of this torch is not one it knows"
    return None


def why(loader: DataLoader[Any]) -> str:
    """Say what is gained."""
    return "worker processes, their batches handed over in reused shared memory"


def _iterate(loader: DataLoader[Any]) -> Any:
    """Return torch's iterator over workers with another way of handing over; persistent workers are kept."""
    from unstarve.fixes.loader.ring.iterator import RingIterator

    if loader.persistent_workers and isinstance(loader._iterator, RingIterator):
        loader._iterator._reset(loader)
        return loader._iterator
    loader.check_worker_number_rationality()
    iterator = RingIterator(loader)
    if loader.persistent_workers:
        loader._iterator = iterator
    return iterator
