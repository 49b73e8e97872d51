"""What can make a loader's batches in threads: its dataset, a transform of it, or a stand-in for both."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from torch.utils.data import Subset

from unstarve.fixes.samples.random_streams import LoadBatch
from unstarve.machine import share_of_cores, usable_cores

STAND_IN = "_unstarve_stand_in"
"""Attribute of a loader: an object that makes batches of the same samples in place of its dataset."""


@runtime_checkable
class BatchingTransform(Protocol):
    """A transform that can make whole batches for the dataset that it belongs to, as `DecodeCrop` can."""

    def batch_reader_for(self, dataset: Any) -> Any:
        """Return an object with the `read_batch` and `releases_gil` that the dataset lacks; None: cannot."""


def source_of(loader: Any) -> Any:
    """Return the source of the loader's batches: its dataset, or the object that stands in for it."""
    return getattr(loader, STAND_IN, loader.dataset)


def reader_of(dataset: Any) -> Callable[[Any], Any] | None:
    """Return the function that makes batches without the GIL, also for a Subset; None if there is none."""
    return _method_of(dataset, "read_batch")


def load_of(dataset: Any) -> LoadBatch | None:
    """Return the function that reads batches to be made in steps, also for a Subset; None: there is none."""
    return _method_of(dataset, "load_batch")


def _method_of(dataset: Any, name: str) -> Callable[[Any], Any] | None:
    if type(dataset) is Subset:
        inner = _method_of(dataset.dataset, name)
        return None if inner is None else functools.partial(_read_subset, inner, dataset.indices)
    reader = _batch_reader(dataset)
    read: Callable[[Any], Any] | None = getattr(reader, name, None)
    return read if getattr(reader, "releases_gil", False) else None


def draws_of(dataset: Any) -> bool:
    """Whether making a batch draws random numbers (`random_streams.generator_here`), also for a Subset."""
    if type(dataset) is Subset:
        return draws_of(dataset.dataset)
    return getattr(_batch_reader(dataset), "draws", False) is True


def splits_batches(dataset: Any) -> bool:
    """Whether all threads read each batch together, so that several batches at once are no faster."""
    if type(dataset) is Subset:
        return splits_batches(dataset.dataset)
    return getattr(_batch_reader(dataset), "splits_batches", False) is True


def _batch_reader(dataset: Any) -> Any:
    """Return what makes the dataset's batches: its transform where that can, otherwise the dataset itself."""
    transform = getattr(dataset, "transform", None)
    if transform is not None and isinstance(transform, BatchingTransform):  # which takes its time
        return transform.batch_reader_for(dataset) or dataset
    return dataset


def _read_subset(read: Callable[[Any], Any], positions: Any, indices: Any) -> Any:
    return read([positions[index] for index in indices])


def native_threads(workers: int) -> int:
    """Return how many threads may compute batches: this process's share of the cores, or `workers`."""
    return min(max(workers, int(share_of_cores())), usable_cores())


def native_threads_once(workers: int) -> Callable[[], int]:
    """Return `native_threads` as a function that finds it once: a quota is in files, which takes its time."""
    found: list[int] = []

    def threads() -> int:
        if not found:
            found.append(native_threads(workers))
        return found[0]

    return threads
