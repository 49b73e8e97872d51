"""Reading values from shared memory: one by one, and many at once, which is faster.

Each column has `at`, which maps a position to its value, and `some`, which returns the values from a position
up to another one as a list. Neither checks its arguments. Values are new objects each time, equal to those
that were shared and of the same types.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from unstarve.fixes.memory.region import SharedRegion
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


class Column(Protocol):
    """Values in shared memory."""

    @property
    def at(self) -> Callable[[int], Any]:
        """Return the value at a position."""

    @property
    def some(self) -> Callable[[int, int], list[Any]]:
        """Return the values from a position up to another one."""


def column_of(region: SharedRegion, layout: Layout) -> Column:
    """Return the column that a layout describes."""
    match layout:
        case Numbers():
            return _NumberColumn(numbers(region, layout))
        case NumpyScalars():
            return _NumpyColumn(region, layout)
        case Nones():
            return _NoneColumn()
        case Blobs():
            return _AsciiColumn(region, layout) if layout.kind == "ascii" else _BlobColumn(region, layout)
        case Paths():
            return _PathColumn(column_of(region, layout.texts), layout.type)
        case Rows():
            return _RowColumn([column_of(region, field) for field in layout.fields], _maker(layout))
        case Nested():
            return _NestedColumn(region, layout)


def numbers(region: SharedRegion, layout: Numbers) -> memoryview[Any]:
    """Return numbers as a view that cannot be written to; its items are Python's int, float or bool."""
    size_bytes = layout.count * np.dtype(layout.format).itemsize
    view = memoryview(region.memory)[layout.offset : layout.offset + size_bytes]
    return view.toreadonly().cast(layout.format)  # type: ignore[call-overload,no-any-return]  # a literal format


class _NumberColumn:
    def __init__(self, view: memoryview[Any]) -> None:
        self._view = view
        self.at: Callable[[int], Any] = view.__getitem__

    def some(self, begin: int, end: int) -> list[Any]:
        return self._view[begin:end].tolist()


class _NumpyColumn:
    def __init__(self, region: SharedRegion, layout: NumpyScalars) -> None:
        memory = memoryview(region.memory).toreadonly()
        self._array = np.frombuffer(memory, layout.dtype, layout.count, layout.offset)
        self.at: Callable[[int], Any] = self._array.__getitem__

    def some(self, begin: int, end: int) -> list[Any]:
        return list(self._array[begin:end])


class _NoneColumn:
    def at(self, position: int) -> None:
        return None

    def some(self, begin: int, end: int) -> list[Any]:
        return [None] * (end - begin)


class _BlobColumn:
    def __init__(self, region: SharedRegion, layout: Blobs) -> None:
        self._memory = region.memory
        self._bounds = numbers(region, layout.bounds)
        readers: dict[str, Callable[[bytes], Any]] = {"str": _text, "bytes": bytes, "pickle": pickle.loads}
        self._read = readers[layout.kind]

    def at(self, position: int) -> Any:
        bounds = self._bounds
        return self._read(self._memory[bounds[position] : bounds[position + 1]])

    def some(self, begin: int, end: int) -> list[Any]:
        bounds = self._bounds[begin : end + 1].tolist()
        start = bounds[0]
        data = self._memory[start : bounds[-1]]
        read = self._read
        return [read(data[a - start : b - start]) for a, b in pairwise(bounds)]


def _text(data: bytes) -> str:
    # Names of files may hold bytes that are not UTF-8; Python keeps them as surrogates.
    return data.decode("utf-8", "surrogatepass")


class _AsciiColumn:
    """Most texts: as each character is a byte, many are decoded at once and then cut."""

    def __init__(self, region: SharedRegion, layout: Blobs) -> None:
        self._memory = region.memory
        self._bounds = numbers(region, layout.bounds)

    def at(self, position: int) -> Any:
        bounds = self._bounds
        return self._memory[bounds[position] : bounds[position + 1]].decode()

    def some(self, begin: int, end: int) -> list[Any]:
        bounds = self._bounds[begin : end + 1].tolist()
        start = bounds[0]
        text = self._memory[start : bounds[-1]].decode()
        return [text[a - start : b - start] for a, b in pairwise(bounds)]


class _PathColumn:
    def __init__(self, texts: Column, type_: type[Any]) -> None:
        self._text_at, self._texts, self._type = texts.at, texts.some, type_

    def at(self, position: int) -> Any:
        return self._type(self._text_at(position))

    def some(self, begin: int, end: int) -> list[Any]:
        return [self._type(text) for text in self._texts(begin, end)]


class _RowColumn:
    def __init__(self, fields: list[Column], make: Callable[[Any], Any]) -> None:
        self._fields = fields
        self._at = [field.at for field in fields]
        self._make = make

    def at(self, position: int) -> Any:
        return self._make([at(position) for at in self._at])

    def some(self, begin: int, end: int) -> list[Any]:
        rows = zip(*(field.some(begin, end) for field in self._fields), strict=True)
        return list(rows) if self._make is tuple else [self._make(row) for row in rows]


def _maker(layout: Rows) -> Callable[[Any], Any]:
    """Return the function that makes a row of its fields."""
    if layout.type is dict:
        return partial(_record, layout.keys)
    return tuple if layout.type is tuple else layout.type._make


def _record(keys: tuple[Any, ...], fields: Any) -> dict[Any, Any]:
    return dict(zip(keys, fields, strict=True))


class _NestedColumn:
    def __init__(self, region: SharedRegion, layout: Nested) -> None:
        self._bounds = numbers(region, layout.bounds)
        self._values = column_of(region, layout.values).some
        self._type = layout.type

    def at(self, position: int) -> Any:
        bounds = self._bounds
        return self._type(self._values(bounds[position], bounds[position + 1]))

    def some(self, begin: int, end: int) -> list[Any]:
        bounds = self._bounds[begin : end + 1].tolist()
        start = bounds[0]
        values = self._values(start, bounds[-1])
        return [self._type(values[a - start : b - start]) for a, b in pairwise(bounds)]
