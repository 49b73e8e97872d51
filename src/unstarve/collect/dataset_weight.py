"""The attributes that make a dataset large.

Without fork, a dataset is pickled for every worker. With it, a list, dict, tuple or set of Python objects is
copied page by page into every worker that reads it, because reading an object counts a reference inside it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from unstarve.collect.memory.dataset_containers import layers

_LEAST_BYTES = 1 << 20
_LOOKED_AT = 100
"""Items of a container whose mean stands for all of them."""
_DEEPEST = 3
_ARRAY_BYTES = 112
"""An array or a tensor as a Python object, without its elements: only this is counted in references."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container of Python objects."""

    name: str
    """``self.samples``, ``self.dataset.samples``."""
    kind: str
    """``list``."""
    items: str
    """Type of its items, ``tuple``; of a mapping, of its values."""
    count: int
    bytes: int
    """With its items, approximately."""


def largest_attribute(dataset: Any) -> tuple[str, int] | None:
    """Name and approximate bytes of the largest attribute; None when all are small."""
    sizes = {f"self.{name}": _weight(value, _DEEPEST) for name, value in vars(dataset).items()}
    name = max(sizes, key=lambda one: sizes[one], default=None)
    return None if name is None or sizes[name] < _LEAST_BYTES else (name, sizes[name])


def largest_container(dataset: Any) -> Container | None:
    """The largest container of Python objects, also in datasets that this one wraps; None if all are small.

    A dataset that is itself a list has the name ``self``.
    """
    held = [(f"{place}.{name}", v) for place, one in layers(dataset) for name, v in list(vars(one).items())]
    found = [_container(name, v) for name, v in [("self", dataset), *held] if _is_container(v) and v]
    largest = max(found, key=lambda one: one.bytes, default=None)
    return None if largest is None or largest.bytes < _LEAST_BYTES else largest


def _container(name: str, value: Any) -> Container:
    item = next(iter(value.values() if isinstance(value, Mapping) else value))
    weight = _weight(value, _DEEPEST, arrays=False)
    return Container(name, type(value).__name__, type(item).__name__, len(value), weight)


def _is_container(value: Any) -> bool:
    return isinstance(value, (list, tuple, set, frozenset, dict))


def _weight(value: Any, deep: int, *, arrays: bool = True) -> int:
    nbytes = getattr(value, "nbytes", None)  # tensors and arrays
    if isinstance(nbytes, int):
        return nbytes if arrays else _ARRAY_BYTES
    if hasattr(value, "shared_bytes"):  # by unstarve.share: only a handle is pickled
        return sys.getsizeof(value, 0)
    if not deep or not isinstance(value, (list, tuple, set, frozenset, Mapping)) or not value:
        return sys.getsizeof(value, 0)
    items = list(islice(value.values() if isinstance(value, Mapping) else value, _LOOKED_AT))
    if not arrays and isinstance(value, Mapping):
        items += islice(value, _LOOKED_AT)
    mean = sum(_weight(item, deep - 1, arrays=arrays) for item in items) / min(len(value), _LOOKED_AT)
    return sys.getsizeof(value, 0) + round(mean * len(value))
