"""Randomness in a dataset that is about to be cached: what is drawn once would be the same in every epoch."""

from __future__ import annotations

import pickle
import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

_RANDOM_NAMES = frozenset(
    {"AugMix", "AutoAugment", "ColorJitter", "CutMix", "ElasticTransform", "MixUp", "RandAugment"}
    | {"ScaleJitter", "TrivialAugmentWide"}
)
_PLACES = ("transform", "transforms", "target_transform", "dataset", "datasets")
_DEEPEST = 8


def warn_if_frozen(dataset: Any, drew: bool) -> None:
    """Warn where random transforms can be seen in a dataset, or where it `drew` random numbers."""
    names = sorted(set(_random_parts(dataset)))
    if not names and not drew:
        return
    seen = ", ".join(names) if names else "it drew random numbers for a sample"
    warnings.warn(
        f"{type(dataset).__name__} is random ({seen}), but a cached sample is the same in every epoch: take"
        " what is random out of the dataset and pass it as CachedDataset(dataset, transform=...), where it"
        " runs anew each time",
        stacklevel=3,
    )


def random_state() -> bytes:
    """Return where the global random streams are; another value later means that something was drawn."""
    streams = (random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state().numpy())
    return pickle.dumps(streams)


def _random_parts(part: Any, depth: int = 0) -> Iterator[str]:
    """Names of random transforms of torchvision, albumentations and their like, wherever they are nested."""
    if depth > _DEEPEST:
        return
    if isinstance(part, (list, tuple)):
        for each in part:
            yield from _random_parts(each, depth + 1)
        return
    if _is_random(part):
        yield type(part).__name__
        return
    inside = getattr(part, "__dict__", {})
    for place in _PLACES:
        if place in inside:
            yield from _random_parts(inside[place], depth + 1)
    if isinstance(part, torch.nn.Module):
        for child in part.children():
            yield from _random_parts(child, depth + 1)


def _is_random(part: Any) -> bool:
    kind = type(part)
    if kind.__module__.split(".")[0] == "albumentations":
        chance = getattr(part, "p", 1)
        if isinstance(chance, (int, float)) and 0 < chance < 1:
            return True
    return callable(part) and (kind.__name__.startswith("Random") or kind.__name__ in _RANDOM_NAMES)
