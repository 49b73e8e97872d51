"""The engines with torch's worker processes.

`ring`: the same workers, which hand their batches over in reused shared memory.
`stock`: torch's own iterators; right for everything, and the baseline for every other engine.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data import dataloader as torch_loader
from torch.utils.data._utils import worker

from unstarve.fixes.loader.engines.torch_epoch import BegunEpoch
from unstarve.fixes.loader.resume.progress import UNTRACKED, progress_of
from unstarve.fixes.loader.resume.worker_iterators import InProcessIterator, StockWorkers
from unstarve.stack_levels import uncounted


def plan_ring(loader: DataLoader[Any]) -> Callable[[], Iterator[Any]] | str:
    """Return how to iterate with ring workers, or why they cannot replace torch's."""
    if loader.num_workers == 0:
        return "no worker processes (num_workers=0)"
    return why_no_ring() or functools.partial(_iterate_ring, loader)


def why_no_ring() -> str | None:
    """Say why no loader can have ring workers on this system or with this torch; None if one can."""
    if sys.platform != "linux" or not hasattr(os, "memfd_create"):
        return "needs memfd_create (Linux only)"
    if "data_queue" not in inspect.signature(worker._worker_loop).parameters:
        return "unknown worker loop in this version of torch"
    return None


def why_ring(loader: DataLoader[Any]) -> str:
    """Say what this engine gains."""
    return "worker processes hand their batches over in reused shared memory"


@uncounted
def _iterate_ring(loader: DataLoader[Any]) -> Any:
    """Return an iterator over ring workers; a loader with persistent workers keeps its own."""
    from unstarve.fixes.loader.ring.ring_iterator import RingIterator  # imports parts that only Linux has

    if loader.persistent_workers and isinstance(loader._iterator, RingIterator):
        loader._iterator._reset(loader)
        return loader._iterator
    loader.check_worker_number_rationality()
    iterator = RingIterator(loader)
    if loader.persistent_workers:
        loader._iterator = iterator
    return iterator


ORIGINAL = "_unstarve_original"
"""Attribute of a function that replaces `DataLoader.__iter__`: torch's own."""


def plan_stock(loader: DataLoader[Any]) -> Callable[[], Iterator[Any]]:
    """Return how to iterate as torch's own loader does; refuses nothing."""
    return functools.partial(_iterate_stock, loader)


def why_stock(loader: DataLoader[Any]) -> str:
    """Say why no other engine was chosen."""
    return "no other engine gives the same batches faster here"


@uncounted
def _iterate_stock(loader: DataLoader[Any]) -> Iterator[Any]:
    if isinstance(loader._iterator, BegunEpoch):
        loader._iterator = None  # torch would mistake it for its own iterator over persistent workers
    replaced: Any = DataLoader.__iter__
    torch_iter: Callable[[DataLoader[Any]], Iterator[Any]] = getattr(replaced, ORIGINAL, replaced)
    is_torchs = getattr(torch_iter, "__globals__", None) is vars(torch_loader)
    own_iterators = type(loader)._get_iterator is not DataLoader._get_iterator
    if progress_of(loader) is UNTRACKED or own_iterators or not is_torchs:
        return torch_iter(loader)
    return _iterate_tracked(loader)


@uncounted
def _iterate_tracked(loader: DataLoader[Any]) -> Iterator[Any]:
    """Do what torch's `DataLoader.__iter__` does, with iterators that count their batches."""
    if loader.num_workers == 0:
        return InProcessIterator(loader)
    if loader.persistent_workers and loader._iterator is not None:
        loader._iterator._reset(loader)
        return loader._iterator
    loader.check_worker_number_rationality()
    iterator = StockWorkers(loader)
    if loader.persistent_workers:
        loader._iterator = iterator
    return iterator
