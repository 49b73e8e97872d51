"""A first look at a dataset: a few samples show their layout and size, and whether the dataset is random."""

from __future__ import annotations

import pickle
import random
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from unstarve.errors import CacheError
from unstarve.fixes.memory.store.sample_layout import SampleLayout, check, dumps, layout_of, loads
from unstarve.fixes.samples.leaves import OBJECT

_RANDOM_NAMES = frozenset(
    {"AugMix", "AutoAugment", "ColorJitter", "CutMix", "ElasticTransform", "MixUp", "RandAugment"}
    | {"ScaleJitter", "TrivialAugmentWide"}
)
_ATTRIBUTES = ("transform", "transforms", "target_transform", "dataset", "datasets")
_MAX_DEPTH = 8


@dataclass(frozen=True)
class DatasetProbe:
    """Copies of a few samples of a dataset, by index."""

    samples: dict[int, Any]
    layout: SampleLayout
    blob_bytes: float
    """Mean size of what a sample needs besides its rows."""
    drew: bool
    """Whether reading the samples drew random numbers."""


def probe(source: Any, count: int) -> DatasetProbe:
    """Read the first, the middle and the last sample. Raises CacheError for one that fails."""
    before = _random_state()
    samples = {}
    for index in sorted({0, count // 2, count - 1} if count else ()):
        sample = fetched(source, index)
        try:
            check(sample)
            samples[index] = loads(dumps(sample))  # a copy: the dataset may reuse its memory
        except Exception as error:  # whatever pickle raises for what a dataset returns
            raise cannot_cache(index, error) from error
    drew = _random_state() != before
    found = list(samples.values())
    layout = layout_of(found) if found else SampleLayout(0, (OBJECT,), batchable=False)
    return DatasetProbe(samples, layout, _blob_bytes(layout, found), drew)


def fetched(source: Any, index: int) -> Any:
    """Read a sample from a dataset. Raises CacheError, which names the index."""
    try:
        return source[index]
    except Exception as error:  # whatever a dataset raises: the index tells the user where to look
        raise CacheError(f"sample {index} could not be read: {type(error).__name__}: {error}") from error


def cannot_cache(index: int, error: Exception) -> CacheError:
    """Return an error that says which sample cannot be cached and why."""
    if isinstance(error, CacheError):
        return CacheError(f"sample {index}: {error}")
    return CacheError(f"sample {index} cannot be cached: {type(error).__name__}: {error}")


def _blob_bytes(layout: SampleLayout, samples: list[Any]) -> float:
    if not layout.in_blobs or not samples:
        return 0.0
    sizes = []
    for sample in samples:
        values = layout.values(sample)
        pickled = sample if values is None else [values[at] for at in layout.in_blobs]
        sizes.append(len(dumps(pickled)))
    return sum(sizes) / len(sizes)


def warn_if_random(dataset: Any, drew: bool) -> None:
    """Warn if a dataset has random transforms or drew random numbers: a cache would freeze its samples."""
    names = sorted(set(random_parts(dataset)))
    if not names and not drew:
        return
    reason = ", ".join(names) if names else "it drew random numbers for a sample"
    warnings.warn(
        f"{type(dataset).__name__} is random ({reason}), but a cached sample is the same in every epoch:"
        " remove the random part from the dataset and pass it as CachedDataset(dataset, transform=...), which"
        " runs every time",
        stacklevel=3,
    )


def _random_state() -> bytes:
    """Return the state of the global random generators; it changes with every draw."""
    streams = (random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state().numpy())
    return pickle.dumps(streams)


def random_parts(part: Any, depth: int = 0) -> Iterator[str]:
    """Yield the names of random transforms (torchvision, albumentations, …), however deeply nested."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(part, (list, tuple)):
        for each in part:
            yield from random_parts(each, depth + 1)
        return
    if _is_random(part):
        yield type(part).__name__
        return
    inside = getattr(part, "__dict__", {})
    for name in _ATTRIBUTES:
        if name in inside:
            yield from random_parts(inside[name], depth + 1)
    if isinstance(part, torch.nn.Module):
        for child in part.children():
            yield from random_parts(child, depth + 1)


def _is_random(part: Any) -> bool:
    kind = type(part)
    if kind.__module__.split(".")[0] == "albumentations":
        chance = getattr(part, "p", 1)
        if isinstance(chance, (int, float)) and 0 < chance < 1:
            return True
    return callable(part) and (kind.__name__.startswith("Random") or kind.__name__ in _RANDOM_NAMES)
