"""A dict whose keys and values are in shared memory, with a hash table beside them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NoReturn
from zlib import crc32

import numpy as np

from unstarve.fixes.memory.region import SharedRegion
from unstarve.fixes.memory.shared.columns import numbers
from unstarve.fixes.memory.shared.encoding import ColumnFile, encode, numbers_of
from unstarve.fixes.memory.shared.layouts import Layout, Numbers
from unstarve.fixes.memory.shared.shared_list import SharedList, read_only

_SPREAD = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio: spreads hashes that differ in few bits
_64_BITS = (1 << 64) - 1


@dataclass(frozen=True)
class DictLayout:
    """Where a dict's keys and values lie, in its order, and how a key is found.

    The keys of bucket b are those at the positions `order[starts[b]:starts[b + 1]]`.
    """

    count: int
    keys: Layout
    values: Layout
    starts: Numbers
    order: Numbers
    shift: int
    """A bucket is the first 64 - `shift` bits of a spread hash."""


def encode_dict(file: ColumnFile, source: Mapping[Any, Any]) -> DictLayout:
    """Append a dict to a file. Raises NotShareable."""
    keys = list(source)
    values = encode(file, list(source.values()))
    bits = max(1, len(keys).bit_length())
    hashes = np.fromiter((_stable_hash(key) & _64_BITS for key in keys), np.uint64, len(keys))
    buckets = (hashes * np.uint64(_SPREAD)) >> np.uint64(64 - bits)
    ends = np.cumsum(np.bincount(buckets.astype(np.int64), minlength=1 << bits), dtype=np.uint64)
    starts = np.concatenate([np.zeros(1, np.uint64), ends])
    order = np.argsort(buckets, kind="stable").astype(np.uint64)
    return DictLayout(
        len(keys), encode(file, keys), values, numbers_of(file, starts), numbers_of(file, order), 64 - bits
    )


def _stable_hash(key: Any) -> int:
    """Return a hash that is equal for equal keys in all processes; Python's own is not, for texts."""
    if isinstance(key, str):
        return crc32(key.encode("utf-8", "surrogatepass"))
    if isinstance(key, bytes):
        return crc32(key)
    if isinstance(key, tuple):
        return hash(tuple([_stable_hash(part) for part in key]))
    if isinstance(key, PurePath):
        return _stable_hash(key.as_posix().lower())  # Windows's paths are equal in any case
    return 0 if key is None else hash(key)


class SharedDict(Mapping[Any, Any]):
    """Reads like the dict that it replaces; its values are new objects each time.

    A key that a `defaultdict` lacks gives a new default value, which is not kept.
    """

    __slots__ = ("__weakref__", "_factory", "_keys", "_layout", "_order", "_region", "_starts", "_values")

    def __init__(
        self, region: SharedRegion, layout: DictLayout, factory: Callable[[], Any] | None = None
    ) -> None:
        self._region, self._layout, self._factory = region, layout, factory
        self._keys = SharedList(region, layout.keys, layout.count)
        self._values = SharedList(region, layout.values, layout.count)
        self._starts, self._order = numbers(region, layout.starts), numbers(region, layout.order)

    @property
    def shared_bytes(self) -> int:
        """The memory of everything that was shared together with this dict."""
        return self._region.size

    def _find(self, key: Any) -> int:
        """Return a key's position; -1 if there is none."""
        bucket = (_stable_hash(key) * _SPREAD & _64_BITS) >> self._layout.shift
        for slot in range(self._starts[bucket], self._starts[bucket + 1]):
            position: int = self._order[slot]
            if self._keys._at(position) == key:
                return position
        return -1

    def __getitem__(self, key: Any) -> Any:
        position = self._find(key)
        if position >= 0:
            return self._values._at(position)
        if self._factory is None:
            raise KeyError(key)
        return self._factory()

    def get(self, key: Any, default: Any = None) -> Any:
        """Return a key's value, or the default."""
        position = self._find(key)
        return default if position < 0 else self._values._at(position)

    def __contains__(self, key: object) -> bool:
        return self._find(key) >= 0

    def __len__(self) -> int:
        return self._layout.count

    def __iter__(self) -> Iterator[Any]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self._keys)

    def values(self) -> ValuesView[Any]:
        """Return a view of the values."""
        return _Values(self)

    def items(self) -> ItemsView[Any, Any]:
        """Return a view of keys and values."""
        return _Items(self)

    def copy(self) -> dict[Any, Any]:
        """Return a plain dict."""
        plain = dict(self.items())
        return plain if self._factory is None else defaultdict(self._factory, plain)

    def __or__(self, other: Any) -> dict[Any, Any]:
        return self.copy() | dict(other)

    def __ror__(self, other: Any) -> dict[Any, Any]:
        return dict(other) | self.copy()

    def __repr__(self) -> str:
        shown = ", ".join(f"{key!r}: {self[key]!r}" for key in self._keys[:3])
        return f"<shared dict of {len(self):,}: {{{shown}{', …' if len(self) > 3 else ''}}}>"

    def __copy__(self) -> SharedDict:
        return self  # it never changes

    def __deepcopy__(self, memo: Any) -> SharedDict:
        return self

    def __reduce__(self) -> Any:
        return SharedDict, (self._region, self._layout, self._factory)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise read_only("dict")

    __setitem__ = __delitem__ = __ior__ = _refuse
    pop = popitem = clear = update = setdefault = _refuse


class _Values(ValuesView[Any]):
    """Values in order, read many at once; the inherited view would look up each key."""

    _mapping: SharedDict

    def __iter__(self) -> Iterator[Any]:
        return iter(self._mapping._values)


class _Items(ItemsView[Any, Any]):
    _mapping: SharedDict

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return zip(self._mapping._keys, self._mapping._values, strict=True)
