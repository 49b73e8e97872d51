"""What a batch holds and how a loader is configured, without changing either."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

from unstarve import marks
from unstarve.collect.dali_pipeline import pipeline_settings
from unstarve.collect.watched_source import library_module, source_facts

_MOST_ITEMS = 64
"""Batches of more parts than this are not weighed: that would cost too much."""

_MOST_PARTS = 10_000
"""Tensors are not counted to the end in a batch of more parts than this."""

_NESTED = 8
"""Samplers inside of samplers are followed no deeper: one may name itself."""

_CONFIG = (
    "batch_size",
    "num_workers",
    "prefetch_factor",
    "pin_memory",
    "persistent_workers",
    "drop_last",
    "in_order",
    "timeout",
)


def batch_extent(batch: Any, *, collated: bool = True) -> tuple[int, int]:
    """Samples in a batch and bytes of its tensors and arrays; −1 for what cannot be found out cheaply.

    Without ``collated`` (``batch_size=None``) the object may be a ready-made batch or one sample: it counts
    as a batch only if all its tensors agree on their first dimension.
    """
    try:
        if type(batch) in (list, tuple) and len(batch) <= _MOST_ITEMS and collated:
            nbytes = 0
            for item in batch:  # the common case, without walking
                if not isinstance(item, torch.Tensor):
                    break
                nbytes += item.nbytes
            else:
                return (len(batch[0]) if batch and batch[0].ndim else -1), nbytes or -1
        return _walk(batch, collated)
    except Exception:  # a sparse tensor has no bytes, a foreign object may lack anything
        return -1, -1


class Scale:
    """Weighs the batches of one loader, and learns from full ones how to count their samples.

    The first dimension is not always the batch's: a ``collate_fn`` that keeps samples separate returns lists
    of images, whose first dimension is the colour.
    """

    __slots__ = ("_collated", "_count", "_full", "_is_parted", "usual")

    def __init__(self, batch_size: Any, *, collated: bool, is_parted: bool = False) -> None:
        self._collated = collated
        self._is_parted = is_parted
        """A batch is a list of batches, one for each GPU."""
        self._full = batch_size if isinstance(batch_size, int) else None
        """Samples of a full batch; None when it is unknown, or nothing is left to learn."""
        self.usual = False
        """Whether samples are counted by the first dimension for good."""
        self._count: Callable[[Any], int] | None = None
        """How samples are counted where that is not by the first dimension."""

    def weigh(self, batch: Any) -> tuple[int, int]:
        """Samples and bytes, like `batch_extent`."""
        size, nbytes = batch_extent(batch, collated=self._collated)
        if self._is_parted:
            return sum(batch_extent(part)[0] for part in batch), nbytes
        if self._count is not None:
            return self._count(batch), nbytes
        if self._full is None or size == self._full:
            self._full = None
            self.usual = self._collated
            return size, nbytes
        self._count = next((count for count in (_columns, _rows) if count(batch) == self._full), None)
        return (size if self._count is None else self._full), nbytes


def _columns(batch: Any) -> int:
    """Length of the lists in a batch of lists, one per field: ``(images, targets)``; −1 when they differ."""
    if not isinstance(batch, (list, tuple)):
        return -1
    lengths = {len(field) if isinstance(field, (list, tuple)) else -1 for field in batch}
    return lengths.pop() if len(lengths) == 1 else -1


def _rows(batch: Any) -> int:
    """Length of a batch that is a list of samples."""
    return len(batch) if isinstance(batch, (list, tuple)) else -1


def _walk(batch: Any, collated: bool) -> tuple[int, int]:
    array = getattr(sys.modules.get("numpy"), "ndarray", torch.Tensor)
    size, nbytes, seen, agree = -1, 0, 0, True
    pending = [batch]
    while pending:
        item = pending.pop()
        seen += 1
        if seen > _MOST_ITEMS:
            return (size if collated or size >= 0 else _ready_made(batch)), -1
        if isinstance(item, (torch.Tensor, array)):
            nbytes += item.nbytes
            first = len(item) if item.ndim else -1
            if size < 0:
                size = first
            agree = agree and first == size
        elif isinstance(item, Mapping):
            pending.extend(reversed(list(item.values())))
        elif isinstance(item, (list, tuple)):
            pending.extend(reversed(item))
    if not collated and not agree:
        size = 1
    if nbytes == 0 and size < 0:
        return (_rows(batch) if collated else _ready_made(batch)), -1
    return size, nbytes or -1


def _ready_made(batch: Any) -> int:
    """Samples of a batch without tensors that the dataset itself has made; −1 where they cannot be told.

    Lists of equal length, one per field, or a list of tuples or mappings, one per sample.
    """
    if type(batch) is list and batch and isinstance(batch[0], (tuple, Mapping)):
        return len(batch)
    return _columns(list(batch.values()) if isinstance(batch, Mapping) else batch)


def count_tensors(batch: Any) -> int | None:
    """Tensors in nested mappings, lists and tuples; None when there are too many parts to look at.

    A worker sends each tensor as a separate message.
    """
    count = seen = 0
    pending = [batch]
    while pending:
        item = pending.pop()
        seen += 1
        if seen > _MOST_PARTS:
            return None
        if isinstance(item, torch.Tensor):
            count += 1
        elif isinstance(item, Mapping):
            pending.extend(item.values())
        elif isinstance(item, (list, tuple)):
            pending.extend(item)
    return count


def loader_config(loader: Any) -> dict[str, Any]:
    """The arguments of a DataLoader that matter for its speed, as plain data."""
    config = {name: value for name in _CONFIG if _plain(value := getattr(loader, name, None))}
    for name in ("dataset", "sampler", "batch_sampler", "collate_fn"):
        value = getattr(loader, name, None)
        if value is not None:
            config[name] = getattr(value, "__qualname__", type(value).__qualname__)
    if config.get("batch_size") is None and "batch_sampler" in config:  # torch's own sampler is not asked
        config["sampler"] = order_of(loader)
    length = dataset_length(getattr(loader, "dataset", None))
    if length is not None:
        config["dataset_len"] = length
    config |= pipeline_settings(loader)
    if hasattr(type(loader), "state_dict"):  # it resumes in the middle of an epoch
        config["resumes"] = True
    engine = _engine(loader)
    if engine is not None:
        config["engine"] = engine
    applied = getattr(loader, "__dict__", {}).get(marks.APPLIED)
    if applied is not None:
        config["applied_entry"], config["applied"] = applied
    source = getattr(loader, "__dict__", {}).get(marks.WATCHED)
    if source is None and library_module(loader) is not None:
        source = loader
    if source is not None:
        config |= source_facts(source)
    context = getattr(loader, "multiprocessing_context", None)
    if context is not None:
        config["multiprocessing_context"] = context.get_start_method()
    return config


def order_of(loader: Any) -> str:
    """The class that decides on the order of samples: the sampler inside a batch sampler that was passed."""
    found = loader.sampler
    if loader.batch_size is None and loader.batch_sampler is not None:
        found = loader.batch_sampler
        for _ in range(_NESTED):
            found = getattr(found, "sampler", None) or getattr(found, "batch_sampler", None) or found
    return type(found).__qualname__


def dataset_words(dataset: Any) -> str:
    """A dataset by class and length: ``Images[50000]``."""
    length = dataset_length(dataset)
    return type(dataset).__qualname__ + ("" if length is None else f"[{length}]")


def dataset_length(dataset: Any) -> int | None:
    """The number of samples of a map-style dataset; None if it does not know, or is a stream."""
    if isinstance(dataset, torch.utils.data.IterableDataset) or not hasattr(type(dataset), "__len__"):
        return None
    try:
        return len(dataset)
    except Exception:  # the user's own method, which torch need not have called yet
        return None


def failed_images() -> int:
    """Images that unstarve's own datasets skipped because they could not decode them.

    A training process counts for its workers, so that this is 0 in a worker.
    """
    return 0 if torch.utils.data.get_worker_info() is not None else marks.failed_images()


def _engine(loader: Any) -> str | None:
    """Which of unstarve's engines runs it: the loader's own choice, or that of `unstarve run --engine`."""
    if isinstance(loader, marks.ChoosesEngine):
        return str(loader.engine)
    found = getattr(loader, "__dict__", {}).get(marks.RUNS_ON)
    return found if isinstance(found, str) else None


def _plain(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str))
