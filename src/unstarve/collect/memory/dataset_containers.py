"""How much the containers of a dataset hold: one that grows with every sample is a cache.

Only lengths are read: of the attributes of the dataset and of those it wraps, and of the `functools` caches
of their classes and modules.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

_MOST_LAYERS = 6
"""Datasets inside each other, or side by side."""
_MOST_CONTAINERS = 50
_INNER = ("dataset", "datasets", "ds", "base", "source", "data")
"""Attributes that may hold the datasets that this one wraps."""
_LENGTHS: dict[type, Callable[[Any], int]] = {dict: dict.__len__, list: list.__len__, set: set.__len__}
"""Not `len`: nothing of the user's runs here."""
_CACHE = type(functools.lru_cache(lambda: None))


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
        named = [(f"{place}.{name}", value) for name, value in list(_held(one).items())]
        for name, value in [*named, *_caches(one)]:
            entries = _entries(value)
            if entries is not None and left:
                left -= 1
                yield name, entries


def layers(dataset: Any) -> Iterator[tuple[str, Any]]:
    """The dataset as ``self``, and those it wraps as ``self.dataset``, ``self.datasets[0]``, …"""
    pending, seen = [("self", dataset)], set[int]()
    while pending and len(seen) < _MOST_LAYERS:
        place, one = pending.pop(0)
        if id(one) in seen or not _is_object(one):
            continue
        seen.add(id(one))
        yield place, one
        held = _held(one)
        for name in _INNER:
            inner = held.get(name)
            if isinstance(inner, (list, tuple)):
                pending += [(f"{place}.{name}[{i}]", part) for i, part in enumerate(inner[:_MOST_LAYERS])]
            elif hasattr(type(inner), "__getitem__") or hasattr(type(inner), "__iter__"):
                pending.append((f"{place}.{name}", inner))


def _held(one: Any) -> dict[str, Any]:
    attributes: dict[str, Any] = object.__getattribute__(one, "__dict__")
    return attributes


def _is_object(value: Any) -> bool:
    """Whether it has attributes and is neither a plain container nor an array."""
    kind = type(value)
    plain = isinstance(value, (list, dict, tuple, set, type)) or hasattr(kind, "nbytes")
    return kind.__dictoffset__ != 0 and not plain


def _caches(one: Any) -> list[tuple[str, Any]]:
    """The `functools` caches that its methods and its module have."""
    found = []
    for kind in type(one).__mro__[:-1]:
        if kind.__module__.partition(".")[0] != "torch":
            found += [(f"{kind.__name__}.{name}", value) for name, value in list(vars(kind).items())]
    module = sys.modules.get(type(one).__module__)
    if module is not None and module.__name__.partition(".")[0] != "torch":
        found += list(vars(module).items())
    return [(name, value) for name, value in found if isinstance(value, _CACHE)]


def _entries(value: Any) -> int | None:
    if isinstance(value, _CACHE):
        return value.cache_info().currsize
    return next((length(value) for kind, length in _LENGTHS.items() if isinstance(value, kind)), None)
