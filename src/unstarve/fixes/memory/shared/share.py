"""`unstarve.share`: the lists and dicts of a dataset move into shared memory.

Python counts references inside every object. A worker that only reads a list therefore writes to each of its
values, so that memory inherited by a fork is copied page by page, until each worker has its own list. Without
fork, each worker gets its own list right away. Arrays in shared memory have neither problem.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from types import MemberDescriptorType, ModuleType
from typing import Any, TypeVar, cast

from torch.utils.data import DataLoader, Dataset

from unstarve.errors import UsageError
from unstarve.fixes.memory.region import SharedRegion
from unstarve.fixes.memory.shared.encoding import ColumnFile, NotShareable, encode
from unstarve.fixes.memory.shared.shared_dict import SharedDict, encode_dict
from unstarve.fixes.memory.shared.shared_list import SharedList

D = TypeVar("D")

_CONTAINERS = (list, tuple, dict, defaultdict)
_MIN_BYTES = 1 << 20
"""Workers may copy less than this; reading a plain list is several times as fast."""
_INNER_BYTES = 64 << 10
"""A list within a list that is read in place; a smaller one is made anew each time it is read."""
_FEW = 1024
"""A longer container is shared as a whole, even if its lists are large, and is not searched for datasets."""
_DEEPEST = 5
_WEIGHED = 64
"""Values whose mean size stands for all of them."""

_Build = Callable[[SharedRegion], Any]


def share(dataset: D, *, min_bytes: int = _MIN_BYTES, skip: Collection[str] = ()) -> D:
    """Move a dataset's lists and dicts into memory that all its workers share, and return the dataset.

    The dataset itself changes: attributes that hold at least `min_bytes` of strings, numbers, paths, bytes,
    None, or tuples, lists and dicts of them become read-only lists and dicts. They read as before: equal
    values, the same types. Attributes named in `skip` and all other values stay as they are. Datasets within
    the dataset (`Subset`, `ConcatDataset`, any wrapper) are included, and plain objects that hang on them,
    but nothing that can be called: transforms, tokenizers, models.

    A list or dict may be given instead: it stays unchanged, and a shared one is returned. Raises UsageError
    if that cannot be shared, and for a loader.
    """
    if isinstance(dataset, DataLoader):
        raise UsageError(
            "share takes a dataset, got a DataLoader: share the dataset before you make the loader"
        )
    file = ColumnFile()
    try:
        if type(dataset) in _CONTAINERS:
            return cast(D, _shared_alone(file, dataset))
        plan = _Plan(file, min_bytes, skip)
        plan.visit(dataset, 0)
        if plan.changes:
            region = file.region()
            for assign, build in plan.changes:
                assign(build(region))
        return dataset
    finally:
        file.close()


def _shared_alone(file: ColumnFile, value: Any) -> Any:
    plan = _Plan(file, 0, ())
    build = plan.replacement(value, 0)
    if build is None:
        raise UsageError(f"this {type(value).__name__} cannot be shared: it holds a {plan.refused}")
    return build(file.region())


class _Plan:
    """What to replace by what. Nothing is changed before everything is in the file."""

    def __init__(self, file: ColumnFile, min_bytes: int, skip: Collection[str]) -> None:
        self._file, self._min_bytes, self._skip = file, min_bytes, skip
        self._seen: dict[int, tuple[Any, _Build | None]] = {}
        self.changes: list[tuple[Callable[[Any], None], _Build]] = []
        self.refused = ""
        """The type that could not be shared last."""

    def visit(self, owner: Any, deep: int) -> None:
        """Plan the changes of an object's attributes, and of objects within them."""
        if id(owner) in self._seen or deep > _DEEPEST:
            return
        self._seen[id(owner)] = (owner, None)  # kept alive, so that no other object gets its id
        for name, value, assign in list(_attributes(owner)):
            if name in self._skip:
                continue
            build = self.replacement(value, self._min_bytes) if type(value) in _CONTAINERS else None
            if build is not None:
                self.changes.append((assign, build))
            else:
                for part in _parts(value):
                    if _may_own_lists(part):
                        self.visit(part, deep + 1)

    def replacement(self, value: Any, min_bytes: int, deep: int = 0) -> _Build | None:
        """Return what makes the shared container of a plain one; None if it stays.

        The same container gets the same replacement: torchvision's `samples` and `imgs` are one list.
        """
        if id(value) in self._seen:
            return self._seen[id(value)][1]
        if type(value) not in _CONTAINERS or deep > _DEEPEST or _weight(value) < min_bytes:
            return None
        build = self._of_parts(value, deep) if _holds_large_ones(value) else self._whole(value)
        if build is not None:
            self._seen[id(value)] = (value, build)
        return build

    def _whole(self, value: Any) -> _Build | None:
        start = self._file.size_bytes
        try:
            return _once(self._encoded(value))
        except NotShareable as refused:
            self._file.rewind(start)
            self.refused = str(refused)
            return None

    def _encoded(self, value: Any) -> _Build:
        if isinstance(value, dict):
            layout = encode_dict(self._file, value)
            return lambda region: SharedDict(region, layout, getattr(value, "default_factory", None))
        column, count, like = encode(self._file, value), len(value), type(value)
        return lambda region: SharedList(region, column, count, like)

    def _of_parts(self, value: Any, deep: int) -> _Build | None:
        """Keep a container of few large ones, and replace those: ``{"train": […], "test": […]}``."""
        keyed = value.items() if isinstance(value, dict) else enumerate(value)
        parts = {key: self.replacement(part, _INNER_BYTES, deep + 1) for key, part in keyed}
        builds = {key: build for key, build in parts.items() if build is not None}
        if not builds:
            return None

        def build(region: SharedRegion) -> Any:
            changed = value.copy() if isinstance(value, dict) else list(value)
            for key, make in builds.items():
                changed[key] = make(region)
            return tuple(changed) if isinstance(value, tuple) else changed

        return _once(build)


def _once(build: _Build) -> _Build:
    """Return the same object in each call."""
    made: list[Any] = []

    def cached(region: SharedRegion) -> Any:
        if not made:
            made.append(build(region))
        return made[0]

    return cached


def _attributes(owner: Any) -> Iterator[tuple[str, Any, Callable[[Any], None]]]:
    """Name and value of each attribute that an object itself holds, and what replaces the value.

    Replacing passes by `__setattr__`, which a frozen dataclass refuses.
    """
    fields = getattr(owner, "__dict__", None)
    if isinstance(fields, dict):
        for name, value in fields.items():
            yield name, value, partial(fields.__setitem__, name)
    for kind in type(owner).__mro__:
        if "__slots__" not in vars(kind):
            continue
        for name, slot in vars(kind).items():
            if isinstance(slot, MemberDescriptorType):
                with suppress(AttributeError):  # not set
                    yield name, slot.__get__(owner), partial(slot.__set__, owner)


def _parts(value: Any) -> Collection[Any]:
    """The values in which datasets may be: those of a short list or dict, or the value itself."""
    if isinstance(value, list | tuple | dict):
        return () if len(value) > _FEW else value.values() if isinstance(value, dict) else value
    return (value,)


def _may_own_lists(value: Any) -> bool:
    if isinstance(value, Dataset):
        return True
    return type(value) not in _CONTAINERS and not callable(value) and not isinstance(value, ModuleType)


def _holds_large_ones(value: Any) -> bool:
    parts = value.values() if isinstance(value, dict) else value
    return len(parts) <= _FEW and any(
        type(part) in _CONTAINERS and _weight(part) >= _INNER_BYTES for part in parts
    )


def _weight(value: Any, deep: int = 3) -> int:
    """Return a container's approximate bytes in Python, from a sample of its values."""
    size = sys.getsizeof(value, 0)
    if not deep or not isinstance(value, list | tuple | dict) or not value:
        return size
    if isinstance(value, Mapping):
        some = [part for item in islice(value.items(), _WEIGHED) for part in item]
    else:
        some = list(value[:: max(1, len(value) // _WEIGHED)])
    mean = sum(_weight(part, deep - 1) for part in some) / len(some)
    return size + round(mean * len(value) * (2 if isinstance(value, Mapping) else 1))
