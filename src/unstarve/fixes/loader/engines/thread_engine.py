"""The `threads` engine: threads of the training process read ahead, for datasets that read without the GIL.

No process is started and nothing is handed over between processes. There are `num_workers` threads; without
workers the pace of the training loop decides how far ahead a few threads read, or that the loop's own thread
reads. The loop's own thread asks the sampler, at the moments at which torch would; torch's samplers, which
cannot tell, are begun then and may be asked later. A dataset that draws random numbers draws them as in
torch's workers: each thread makes the batches of one worker, with a generator of that worker's seed. Datasets
with a `load_batch` draw in an order of their own: see `drawn_iterator`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, default_collate

from unstarve.fixes.loader.engines.drawn_iterator import DrawnIterator
from unstarve.fixes.loader.engines.index_order import settled_batches
from unstarve.fixes.loader.engines.read_ahead import THREADS
from unstarve.fixes.loader.engines.thread_iterator import ThreadIterator
from unstarve.fixes.loader.engines.thread_readers import (
    draws_of,
    load_of,
    native_threads,
    reader_of,
    source_of,
)
from unstarve.fixes.loader.engines.torch_epoch import LoaderWithoutDraw
from unstarve.stack_levels import uncounted


def plan_threads(loader: DataLoader[Any]) -> Callable[[], Iterator[Any]] | str:
    """Return how to iterate over batches made by threads, or why threads cannot or should not make them."""
    return why_no_threads(loader) or functools.partial(iterate, loader)


def why_no_threads(loader: DataLoader[Any]) -> str | None:
    """Say why threads cannot make this loader's batches, or not as fast as processes; None if they can."""
    if isinstance(loader.dataset, IterableDataset):
        return "an IterableDataset determines the order of its samples itself"
    if loader.batch_sampler is None:
        return "batch_size=None asks for single samples"
    if loader.collate_fn is not default_collate:
        return "collate_fn is Python code, which would hold the GIL"
    if loader.num_workers > 0 and loader.worker_init_fn is not None:
        return "worker_init_fn must run in worker processes"
    if loader.num_workers == 0 and loader.timeout != 0:
        return "torch refuses a timeout without workers"
    if loader.num_workers == 0 and settled_batches(loader.batch_sampler) == 0:
        return "without workers torch asks this sampler batch by batch; reading ahead would ask it earlier"
    if reader_of(source_of(loader)) is None:
        return "the dataset has no read_batch that releases the GIL"
    if loader.num_workers == 0 and draws_of(source_of(loader)) and load_of(source_of(loader)) is None:
        return "without workers torch draws random numbers in the training thread, batch by batch"
    return None


def why_threads(loader: DataLoader[Any]) -> str:
    """Say what this engine gains."""
    if load_of(source_of(loader)) is not None:
        count = native_threads(loader.num_workers)
        return f"the dataset reads without the GIL: {count} thread{'s' if count > 1 else ''} share each batch"
    count = loader.num_workers or THREADS
    return f"the dataset reads without the GIL: {count} thread{'s' if count > 1 else ''} read ahead"


@uncounted
def iterate(loader: DataLoader[Any]) -> Iterator[Any]:
    """Return an iterator over one epoch. As in torch, a loader with persistent workers keeps one for all."""
    kind = ThreadIterator if load_of(source_of(loader)) is None else DrawnIterator
    if not loader.persistent_workers or loader.num_workers == 0:
        return kind(loader)
    before = loader._iterator
    if isinstance(before, ThreadIterator):
        before._reset(loader)
        return before
    begun = kind(loader if before is None else LoaderWithoutDraw(loader))
    loader._iterator = begun
    return begun
