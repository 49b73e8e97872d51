"""Values of a list → arrays in an unnamed file, and the layout that finds them again.

Only values that come back equal and with the same type are accepted: str, bytes, int, float, complex, bool,
None, paths, numpy numbers, and tuples, lists and dicts of them. Everything else is `NotShareable`.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstarve.fixes.memory.region import SharedRegion, unnamed_file
from unstarve.fixes.memory.shared.layouts import (
    Blobs,
    Layout,
    Nested,
    Nones,
    Numbers,
    NumpyScalars,
    Paths,
    Rows,
)

_PATHS = (PosixPath, PurePosixPath, PureWindowsPath, WindowsPath)
_ATOMS = frozenset({str, bytes, int, float, complex, bool, NoneType, *_PATHS})
_ALIGNED_BYTES = 8
_DEEPEST = 6
"""Levels of lists in lists; also ends the walk through a list that contains itself."""
_MOST_FIELDS = 32
"""Longer tuples have no column for each field."""


class NotShareable(Exception):
    """A value cannot be put into shared memory; the message is its type."""


class ColumnFile:
    """An unnamed file that arrays are appended to, then mapped as a whole by `region`."""

    def __init__(self) -> None:
        self._fd = unnamed_file("unstarve-share")
        self.size_bytes = 0
        self.texts: dict[bytes, tuple[Sequence[str], Blobs]] = {}
        """Columns of text by the identities of their values, which stay alive in it."""
        self.append(bytes(_ALIGNED_BYTES))  # an empty file cannot be mapped

    def append(self, data: bytes | NDArray[Any]) -> int:
        """Write an array; return its offset. Raises OSError if there is no memory."""
        offset = self.size_bytes
        rest = memoryview(data if isinstance(data, bytes) else data.view(np.uint8).data)
        used = offset + len(rest)
        while len(rest):
            rest = rest[os.write(self._fd, rest) :]
        self._seek(-(-used // _ALIGNED_BYTES) * _ALIGNED_BYTES)
        return offset

    def rewind(self, size_bytes: int) -> None:
        """Drop what was written past a size."""
        self.texts = {key: one for key, one in self.texts.items() if one[1].bounds.offset < size_bytes}
        self._seek(size_bytes)

    def _seek(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        os.lseek(self._fd, size_bytes, os.SEEK_SET)

    def region(self) -> SharedRegion:
        """Map the file, which is complete now, and hand its descriptor over to the region."""
        os.ftruncate(self._fd, self.size_bytes)
        fd, self._fd = self._fd, -1
        return SharedRegion(fd, writable=False)

    def close(self) -> None:
        """Free the file unless a region has it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def encode(file: ColumnFile, values: Sequence[Any], deep: int = 0) -> Layout:
    """Append the values of a list to a file. Raises NotShareable; the caller then rewinds the file."""
    types = set(map(type, values))
    if len(types) != 1 or deep > _DEEPEST:
        return _pickled(file, values)
    (kind,) = types
    if kind is int:
        return _integers(file, values)
    if kind is float:
        return _numbers(file, np.array(values, np.float64), "d")
    if kind is bool:
        return _numbers(file, np.array(values, np.bool_), "?")
    if kind is NoneType:
        return Nones()
    if kind is str:
        return _texts(file, values)
    if kind is bytes:
        return _blobs(file, b"".join(values), map(len, values), "bytes")
    if kind in _PATHS:
        return Paths(_texts(file, list(map(str, values))), kind)
    if issubclass(kind, np.number | np.bool_):
        array = np.array(values, kind)
        return NumpyScalars(file.append(array), len(array), array.dtype.str)
    if kind is dict:
        return _records(file, values, deep)
    if kind is tuple or kind is list or _is_named_tuple(kind):
        return _sequences(file, values, kind, deep)
    return _pickled(file, values)


def numbers_of(file: ColumnFile, values: NDArray[np.uint64]) -> Numbers:
    """Append numbers that are not negative, in 4 bytes each if they fit."""
    if not len(values) or values.max() < 1 << 32:
        return _numbers(file, values.astype(np.uint32), "I")
    return _numbers(file, values, "Q")


def _numbers(file: ColumnFile, array: NDArray[Any], format_: str) -> Numbers:
    return Numbers(file.append(array), len(array), format_)


def _integers(file: ColumnFile, values: Sequence[int]) -> Layout:
    try:
        array = np.array(values, np.int64)
    except OverflowError:
        return _pickled(file, values)
    least, most = array.min(), array.max()
    fits = [np.dtype(one) for one in "bhi" if np.iinfo(one).min <= least and most <= np.iinfo(one).max]
    return _numbers(file, array.astype(fits[0]), fits[0].char) if fits else _numbers(file, array, "q")


def _texts(file: ColumnFile, values: Sequence[str]) -> Blobs:
    """Append texts, unless they are there: `paths` and the paths in `samples` are often the same objects."""
    key = np.fromiter(map(id, values), np.uint64, len(values)).tobytes()
    if key not in file.texts:
        file.texts[key] = (values, _new_texts(file, values))
    return file.texts[key][1]


def _new_texts(file: ColumnFile, values: Sequence[str]) -> Blobs:
    joined = "".join(values)
    if joined.isascii():
        return _blobs(file, joined.encode(), map(len, values), "ascii")
    encoded = [value.encode("utf-8", "surrogatepass") for value in values]
    return _blobs(file, b"".join(encoded), map(len, encoded), "str")


def _pickled(file: ColumnFile, values: Sequence[Any]) -> Blobs:
    for value in values:
        _check(value, 0)
    pickles = [pickle.dumps(value, pickle.HIGHEST_PROTOCOL) for value in values]
    return _blobs(file, b"".join(pickles), map(len, pickles), "pickle")


def _check(value: Any, deep: int) -> None:
    """Raise NotShareable for a value that may not come back the same."""
    kind = type(value)
    if kind in _ATOMS:
        return
    if deep > _DEEPEST or kind not in (tuple, list, dict):
        raise NotShareable(kind.__name__)
    for part in chain(value, value.values()) if kind is dict else value:
        _check(part, deep + 1)


def _blobs(file: ColumnFile, data: bytes, lengths: Iterable[int], kind: str) -> Blobs:
    offset = file.append(data)
    return Blobs(numbers_of(file, _bounds(lengths, offset)), kind)


def _bounds(lengths: Iterable[int], start: int) -> NDArray[np.uint64]:
    bounds = np.fromiter(chain((start,), lengths), np.uint64)
    return np.cumsum(bounds, dtype=np.uint64)


def _is_named_tuple(kind: type[Any]) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_make") and hasattr(kind, "_fields")


def _sequences(file: ColumnFile, values: Sequence[Any], kind: type[Any], deep: int) -> Layout:
    if kind is not list:
        widths = set(map(len, values))
        if len(widths) == 1 and 0 < (width := widths.pop()) <= _MOST_FIELDS:
            return Rows(kind, (), _fields(file, values, range(width), deep))
        if kind is not tuple:
            raise NotShareable(kind.__name__)
    flat = list(chain.from_iterable(values))
    if len(set(map(type, flat))) > 1:  # one pickle for each list, not for each value
        return _pickled(file, values)
    bounds = numbers_of(file, _bounds(map(len, values), 0))
    return Nested(kind, bounds, encode(file, flat, deep + 1) if flat else Nones())


def _records(file: ColumnFile, values: Sequence[dict[Any, Any]], deep: int) -> Layout:
    keys = tuple(values[0])
    alike = 0 < len(keys) <= _MOST_FIELDS and all(tuple(value) == keys for value in values)
    if not alike or not _ATOMS.issuperset(map(type, keys)):
        return _pickled(file, values)
    return Rows(dict, keys, _fields(file, values, keys, deep))


def _fields(file: ColumnFile, values: Sequence[Any], keys: Iterable[Any], deep: int) -> tuple[Layout, ...]:
    return tuple(encode(file, [value[key] for value in values], deep + 1) for key in keys)
