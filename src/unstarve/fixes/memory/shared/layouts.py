"""Where the values of a list lie in shared memory.

A list of a million paths is two arrays: the text of all of them, and where each one begins. A list of tuples
or records is one such column per field. A layout describes this in a few hundred bytes. It is what a worker
gets instead of the list; `columns.py` reads the values back, `encoding.py` makes the layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Numbers:
    """One number per value."""

    offset: int
    count: int
    format: str
    """As in `memoryview.cast`: b, h, i, q for int, I, Q for offsets, d for float, ? for bool."""


@dataclass(frozen=True)
class NumpyScalars:
    """One numpy number per value, as in ``list(numpy.arange(3))``."""

    offset: int
    count: int
    dtype: str


@dataclass(frozen=True)
class Nones:
    """Only None."""


@dataclass(frozen=True)
class Blobs:
    """One run of bytes per value: text, bytes, or the pickle of a value that fits nowhere else."""

    bounds: Numbers
    """Where each value begins, counted from the start of the memory, and where the last one ends."""
    kind: str
    """ascii, str, bytes or pickle."""


@dataclass(frozen=True)
class Paths:
    """Paths of one class, as text."""

    texts: Blobs
    type: type[Any]


@dataclass(frozen=True)
class Rows:
    """Tuples of one length, or dicts with the same keys: a column for each field."""

    type: type[Any]
    """tuple, a NamedTuple class, or dict."""
    keys: tuple[Any, ...]
    """Of dicts; empty for tuples."""
    fields: tuple[Layout, ...]


@dataclass(frozen=True)
class Nested:
    """Lists or tuples of any length: the values of all of them in one column."""

    type: type[Any]
    bounds: Numbers
    """Where each one begins in `values`, and where the last one ends."""
    values: Layout


Layout = Numbers | NumpyScalars | Nones | Blobs | Paths | Rows | Nested
