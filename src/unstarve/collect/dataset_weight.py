"""The attribute that makes a dataset large: without fork, it is pickled for every worker."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import islice
from typing import Any

_LEAST_BYTES = 1 << 20
_LOOKED_AT = 100
"""Items of a container whose mean stands for all of them."""
_DEEPEST = 3


def largest_attribute(dataset: Any) -> tuple[str, int] | None:
    """Name and approximate bytes of the largest attribute; None when all are small."""
    sizes = {f"self.{name}": _weight(value, _DEEPEST) for name, value in vars(dataset).items()}
    name = max(sizes, key=lambda one: sizes[one], default=None)
    return None if name is None or sizes[name] < _LEAST_BYTES else (name, sizes[name])


def _weight(value: Any, deep: int) -> int:
    nbytes = getattr(value, "nbytes", None)  # tensors and arrays
    if isinstance(nbytes, int):
        return nbytes
    if hasattr(value, "shared_bytes"):  # by unstarve.share: only a handle is pickled
        return sys.getsizeof(value, 0)
    if not deep or not isinstance(value, (list, tuple, set, frozenset, Mapping)) or not value:
        return sys.getsizeof(value, 0)
    items = list(islice(value.values() if isinstance(value, Mapping) else value, _LOOKED_AT))
    mean = sum(_weight(item, deep - 1) for item in items) / len(items)
    return sys.getsizeof(value, 0) + round(mean * len(value))
