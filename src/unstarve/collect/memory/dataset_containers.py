"""How much the containers of a dataset hold: one that grows with every sample is a cache.

Only lengths are read: of the attributes of the dataset and of those it wraps, and of the `functools` caches
of their classes and modules.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

_DEEPEST = 3
"""Datasets inside each other."""
_MOST_CONTAINERS = 50
_INNER = ("dataset", "datasets", "ds", "base", "source", "data")
"""Attributes that may hold the dataset that this one wraps."""


class DatasetContainers:
    """Watches the dataset of this process, without keeping it alive."""

    def __init__(self) -> None:
        self._dataset: weakref.ref[Any] | None = None
        self._told: dict[str, int] = {}

    def watch(self, dataset: Any) -> None:
        """Look at this dataset from now on; the first one stays."""
        if self._dataset is None or self._dataset() is None:
            try:
                self._dataset = weakref.ref(dataset)
            except TypeError:  # a list, or a class with slots
                self._dataset = None

    def changed(self) -> dict[str, int] | None:
        """The number of entries by name; None if nothing has changed since the last call."""
        dataset = None if self._dataset is None else self._dataset()
        if dataset is None:
            return None
        found = dict(container_sizes(dataset))
        if found == self._told:
            return None
        self._told = found
        return found


def container_sizes(dataset: Any) -> Iterator[tuple[str, int]]:
    """Name and number of entries of each container of a dataset, the outermost dataset first."""
    left = _MOST_CONTAINERS
    for place, one in layers(dataset):
        named = [(f"{place}.{name}", value) for name, value in list(vars(one).items())]
        for name, value in [*named, *_caches(one)]:
            entries = _entries(value)
            if entries is not None and left:
                left -= 1
                yield name, entries


def layers(dataset: Any) -> Iterator[tuple[str, Any]]:
    """The dataset as ``self``, and the datasets it wraps as ``self.dataset``, …"""
    place, seen = "self", set[int]()
    for _ in range(_DEEPEST):
        if not hasattr(dataset, "__dict__") or id(dataset) in seen:
            return
        seen.add(id(dataset))
        yield place, dataset
        held = vars(dataset)
        inner = next((n for n in _INNER if hasattr(held.get(n), "__getitem__") and _is_object(held[n])), None)
        if inner is None:
            return
        place, dataset = f"{place}.{inner}", held[inner]


def _is_object(value: Any) -> bool:
    """Whether it has attributes and is no plain container."""
    return hasattr(value, "__dict__") and not isinstance(value, (list, dict, tuple)) and not _is_array(value)


def _is_array(value: Any) -> bool:
    return isinstance(getattr(value, "nbytes", None), int)


def _caches(one: Any) -> list[tuple[str, Any]]:
    """The `functools` caches that its methods and its module have."""
    found = []
    for kind in type(one).__mro__[:-1]:
        if kind.__module__.partition(".")[0] != "torch":
            found += [(f"{kind.__name__}.{name}", value) for name, value in list(vars(kind).items())]
    module = sys.modules.get(type(one).__module__)
    if module is not None and module.__name__.partition(".")[0] != "torch":
        found += list(vars(module).items())
    return [(name, value) for name, value in found if hasattr(type(value), "cache_info")]


def _entries(value: Any) -> int | None:
    if isinstance(value, deque):
        return len(value) if value.maxlen is None else None
    if isinstance(value, (dict, list, set)):
        return len(value)
    if hasattr(type(value), "cache_info"):
        return int(value.cache_info().currsize)
    return None
