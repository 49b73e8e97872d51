"""What the engines for rows in memory, `views` and `gather`, ask of a loader."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, IterableDataset, default_collate

from unstarve.fixes.loader.engines.rows import Table, table_of

_OWN_WAY = ("_get_iterator", "_index_sampler", "_auto_collation")


def rows_in(loader: DataLoader[Any]) -> Table | str:
    """Return the rows that the loader's batches are made of; or why there are none, or workers are needed."""
    return _why_not_settings(loader) or table_of(loader.dataset)


def _why_not_settings(loader: DataLoader[Any]) -> str | None:
    for name in _OWN_WAY:
        if getattr(type(loader), name, None) is not getattr(DataLoader, name, None):
            return f"{type(loader).__name__} has a {name} of its own"
    if isinstance(loader.dataset, IterableDataset):
        return "an IterableDataset gives samples in an order of its own"
    if loader.batch_sampler is None:
        return "batch_size=None asks for single samples"
    if loader.collate_fn is not default_collate:
        name = getattr(loader.collate_fn, "__qualname__", type(loader.collate_fn).__name__)
        return f"collate_fn {name} may do anything with the samples"
    if loader.num_workers > 0 and loader.worker_init_fn is not None:
        return "worker_init_fn must run in workers, and there would be none"
    if loader.num_workers == 0 and loader.timeout != 0:
        return "a timeout without workers is refused by torch"
    return None
