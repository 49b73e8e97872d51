"""Memory that every worker copies: Python objects after a fork, else the whole dataset."""

from __future__ import annotations

import pickle
import sys
import time
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
import torch

from unstarve.checks.objects.attributes import places, stored
from unstarve.checks.objects.loader_parts import report, start_method
from unstarve.checks.objects.subject import Subject
from unstarve.machine import available_bytes
from unstarve.model.finding import Finding
from unstarve.words import mean_count, size, workers

_LEAST_BYTES = 50_000_000
"""Less is not worth a change, however many workers copy it."""
_FEWEST_ITEMS = 1000
_SAMPLED = 300
"""Items whose size stands for that of all."""
_DEEPEST = 4
_HEADER_BYTES = 128
"""Of a tensor or array: reading it changes its reference count, not its data."""
_LONGEST_S = 2.0
"""Pickling that takes longer is given up: what was counted by then is a lower bound."""
_SHAREABLE = (str, bytes, int, float, complex, type(None), tuple, list, dict, PurePath)
"""What `unstarve.share` can hold."""
_NAMES = {str: "strings", int: "integers", float: "numbers", bytes: "byte strings", type(None): "entries"}


class _Large:
    """A large container of Python objects."""

    def __init__(self, path: str, value: Any) -> None:
        step = max(len(value) // _SAMPLED, 1)
        items = list(islice(dict.values(value) if isinstance(value, dict) else value, 0, None, step))
        keys = list(islice(value, 0, None, step)) if isinstance(value, dict) else []
        seen: dict[int, Any] = {}  # an object that several items share is copied once
        copied = sum(_copied_bytes(item, _DEEPEST, seen) for item in [*keys, *items])
        kinds = {type(item) for item in items}
        kind = kinds.pop() if len(kinds) == 1 else object
        of = _NAMES.get(kind, "objects" if kind is object else f"{kind.__name__}s")
        self.path = path
        self.bytes = round(copied * len(value) / max(len(items), 1))
        self.words = f"{path} is a {type(value).__name__} of {mean_count(len(value))} {of}"
        self.shareable = isinstance(value, (list, dict)) and all(isinstance(one, _SHAREABLE) for one in items)


def copy_on_write(subject: Subject) -> Iterator[Finding]:
    """Large lists and dicts of Python objects in a dataset whose workers are forked."""
    count = subject.loader.num_workers
    if not count or start_method(subject.loader) != "fork":
        return
    found = sorted(_large_containers(subject), key=lambda one: -one.bytes)
    total = sum(one.bytes for one in found)
    if total < _LEAST_BYTES:
        return
    first, name = found[0], subject.dataset_name
    rest = "" if len(found) == 1 else f" With {found[1].path} and the like, {size(total)} in all."
    yield report(
        subject,
        "copy-on-write",
        f"{first.words} ({size(first.bytes)}).{rest} {workers(count).capitalize()} copy up to "
        f"{size(total * count)} while they read.",
        _share(name)
        if first.shareable
        else f"Keep {first.path} in NumPy arrays or an Arrow table instead of Python objects.",
        harm=min(total * count / max(available_bytes(), 1), 1.0),
    )


def _share(name: str) -> str:
    """The call that shares a dataset; a loader's attribute cannot be assigned to, and need not be."""
    return f"{name} = unstarve.share({name})" if name.isidentifier() else f"unstarve.share({name})"


def _large_containers(subject: Subject) -> Iterator[_Large]:
    """The outermost containers of many items: what is inside them counts for them."""
    inside: list[str] = []
    for path, value, *_ in places(subject.loader.dataset, subject.dataset_name):
        if not isinstance(value, (list, dict, tuple, set, frozenset, deque)) or len(value) < _FEWEST_ITEMS:
            continue
        if not path.startswith(tuple(inside)):
            inside.append(f"{path}[")
            yield _Large(path, value)


def _copied_bytes(value: Any, deep: int, seen: dict[int, Any]) -> int:
    """Bytes of the objects whose reference counts change when the value is read."""
    if value is None or isinstance(value, (bool, type)) or id(value) in seen:
        return 0
    seen[id(value)] = value
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return _HEADER_BYTES
    own = sys.getsizeof(value, 0)
    if not deep or isinstance(value, (str, bytes, int, float)):
        return own
    if isinstance(value, dict):
        parts = [part for pair in islice(dict.items(value), _SAMPLED) for part in pair]
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        parts = list(islice(value, _SAMPLED))
    else:
        parts = list(stored(value).values())
    return own + sum(_copied_bytes(part, deep - 1, seen) for part in parts)


def large_pickled_dataset(subject: Subject) -> Iterator[Finding]:
    """A dataset that is large when pickled, and workers that are not forked."""
    loader, name = subject.loader, subject.dataset_name
    method, count = start_method(loader), loader.num_workers
    if not count or method == "fork":
        return
    pickled = pickled_size(loader.dataset)
    if pickled is None or pickled.bytes < _LEAST_BYTES:
        return
    nbytes, least = pickled.bytes, "" if pickled.whole else "at least "
    path, value = _heaviest(subject)
    yield report(
        subject,
        "large-pickled-dataset",
        f"{name} is {least}{size(nbytes)} when pickled, mostly {path}; {method} sends it to each of "
        f"{workers(count)}, {size(nbytes * count)} in all.",
        f"{path} = torch.from_numpy({path})  # workers receive a handle, not a copy"
        if isinstance(value, np.ndarray)
        else _share(name),
        harm=min(nbytes * count / max(available_bytes(), 1), 1.0),
    )


def _heaviest(subject: Subject) -> tuple[str, Any]:
    """The attribute that takes the most memory."""
    sizes: list[tuple[int, str, Any]] = []
    for path, value, *_ in places(subject.loader.dataset, subject.dataset_name):
        if isinstance(value, np.ndarray):
            sizes.append((value.nbytes, path, value))
        elif isinstance(value, (str, bytes, bytearray)):
            sizes.append((len(value), path, value))
        elif isinstance(value, (list, dict)) and len(value) >= _FEWEST_ITEMS:
            sizes.append((_Large(path, value).bytes, path, value))
    return max(sizes, key=lambda one: one[0], default=(0, subject.dataset_name, None))[1:]


class Pickled(NamedTuple):
    """What was counted; without `whole`, pickling took too long, and this is a lower bound."""

    bytes: int
    whole: bool


class _Enough(Exception):
    """Pickling has taken long enough."""


class _Counter:
    """A file that only counts."""

    def __init__(self) -> None:
        self.bytes = 0
        self._until_s = time.monotonic() + _LONGEST_S

    def write(self, data: Any) -> int:
        nbytes = memoryview(data).nbytes
        self.bytes += nbytes
        if time.monotonic() > self._until_s:
            raise _Enough
        return nbytes


class _Pickler(pickle.Pickler):
    """Leaves out tensors, which torch sends to a worker as handles of shared memory."""

    def persistent_id(self, value: Any) -> str | None:
        return "tensor" if isinstance(value, torch.Tensor) else None


def pickled_size(value: Any) -> Pickled | None:
    """The size of a value as it is sent to a worker; None if it cannot be pickled."""
    counter, whole = _Counter(), True
    try:
        _Pickler(counter, pickle.HIGHEST_PROTOCOL).dump(value)
    except _Enough:
        whole = False
    except Exception:  # the user's own objects may raise anything; another check says so
        return None
    return Pickled(counter.bytes, whole)
