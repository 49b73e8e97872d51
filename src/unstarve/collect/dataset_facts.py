"""What advice needs to know about a dataset, found out without reading a sample."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch.utils.data import IterableDataset, StackDataset, Subset, TensorDataset

from unstarve.collect.dataset_files import file_facts
from unstarve.collect.dataset_weight import largest_attribute, largest_container
from unstarve.collect.random_sources import keeps_random_state
from unstarve.collect.storage_layout import mapped_file, sample_chunk, shards_inside, stream_library
from unstarve.collect.whole_reads import whole_read

Facts = dict[str, Any]
"""Plain values by name. A fact that is not known is missing.

``module``
    Module of the class: ``torchvision.datasets.folder``.
``length``
    Number of samples.
``iterable``
    True for an `IterableDataset`.
``columns_in_memory``
    True if samples are rows of tensors that are in memory: a `TensorDataset`, for example.
``plain``
    True for a tensor, an array, a list of them, a tuple or a dict, which `CachedDataset` takes for columns.
``keeps_state``
    True if samples may differ from epoch to epoch without a draw from a global generator; see
    `random_sources`.
``draws``
    Whether the first fetches drew random numbers from a global generator; see `random_draws`.
``root``, ``suffix``, ``file_bytes``, ``files``, ``labels``, ``loads``, ``packs_as``, ``opened``
    Its files; see `dataset_files`.
``like``, ``like_not``, ``recipe``
    Its images; see `launch.image_facts`.
``shards``, ``library``
    The files that a stream's workers share out, and the library that does it; see `storage_layout`.
``chunk_file``, ``chunk_array``, ``chunk_shape``, ``chunk_bytes``
    The chunks of the HDF5 array that samples are rows of; the shape as text: ``256x64x64``.
``whole_read``, ``whole_what``, ``whole_instead``
    What ``__getitem__`` reads in full for each sample, and what to do instead; see `whole_reads`.
``mapped_file``, ``mapped_bytes``
    The file that samples are slices of, mapped into memory, and its size.
``largest_attribute``, ``largest_bytes``
    Name and approximate size of its largest attribute, from 1 MB on: ``self.images``.
``container``, ``container_kind``, ``container_items``, ``container_count``, ``container_bytes``
    Its largest container of Python objects, from 1 MB on: ``self.samples``, a ``list`` of ``tuple``.
"""

Describe = Callable[[Any], Facts]

_ROWS = ("__getitem__", "__getitems__", "__len__")


def dataset_facts(dataset: Any, describe_more: Describe | None = None) -> Facts:
    """The facts about a dataset; empty when there is none, or when it cannot be asked.

    `describe_more` adds facts that `collect` cannot know.
    """
    if dataset is None:
        return {}
    facts: Facts = {"module": type(dataset).__module__}
    with suppress(Exception):  # an iterable dataset, or one whose length is not known yet
        facts["length"] = len(dataset)
    for describe in (
        _kind,
        _state,
        _files,
        _layout,
        _reading,
        _weight,
        _container,
        describe_more or (lambda _: {}),
    ):
        with suppress(Exception):  # a foreign object may raise anything; advice does without the fact
            facts |= describe(dataset)
    return facts


def inside(dataset: Any) -> Any:
    """The dataset that a `Subset` takes its samples from."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return dataset


def _kind(dataset: Any) -> Facts:
    facts: Facts = {}
    if isinstance(dataset, IterableDataset):
        facts["iterable"] = True
    if _is_columns(inside(dataset)):
        facts["columns_in_memory"] = True
    columns = (torch.Tensor, getattr(sys.modules.get("numpy"), "ndarray", torch.Tensor))
    of_columns = isinstance(dataset, list) and bool(dataset) and isinstance(dataset[0], columns)
    if of_columns or isinstance(dataset, (tuple, Mapping, *columns)):
        facts["plain"] = True
    return facts


def _is_columns(dataset: Any) -> bool:
    if type(dataset) is StackDataset:
        parts = dataset.datasets.values() if isinstance(dataset.datasets, dict) else dataset.datasets
        return bool(parts) and all(map(_is_columns, parts))
    is_tensors = isinstance(dataset, TensorDataset) and all(
        getattr(type(dataset), name, None) is getattr(TensorDataset, name, None) for name in _ROWS
    )
    return is_tensors or type(dataset) is torch.Tensor


def _state(dataset: Any) -> Facts:
    return {"keeps_state": True} if keeps_random_state(inside(dataset)) else {}


def _files(dataset: Any) -> Facts:
    return file_facts(dataset, inside(dataset))


def _layout(dataset: Any) -> Facts:
    if isinstance(dataset, IterableDataset):
        shards, library = shards_inside(dataset), stream_library(dataset)
        known: Facts = {} if shards is None else {"shards": shards}
        return known | ({} if library is None else {"library": library})
    chunk = sample_chunk(inside(dataset))
    if chunk is None:
        return {}
    return {
        "chunk_file": chunk.file,
        "chunk_array": chunk.array,
        "chunk_shape": "x".join(map(str, chunk.shape)),
        "chunk_bytes": chunk.nbytes,
    }


def _reading(dataset: Any) -> Facts:
    facts: Facts = {}
    whole, mapped = whole_read(inside(dataset)), mapped_file(inside(dataset))
    if whole is not None:
        facts |= {"whole_read": whole.written, "whole_what": whole.what, "whole_instead": whole.instead}
    if mapped is not None:
        facts |= {"mapped_file": str(mapped), "mapped_bytes": mapped.stat().st_size}
    return facts


def _container(dataset: Any) -> Facts:
    found = largest_container(dataset)
    if found is None:
        return {}
    return {
        "container": found.name,
        "container_kind": found.kind,
        "container_items": found.items,
        "container_count": found.count,
        "container_bytes": found.bytes,
    }


def _weight(dataset: Any) -> Facts:
    largest = largest_attribute(dataset)
    return {} if largest is None else {"largest_attribute": largest[0], "largest_bytes": largest[1]}
