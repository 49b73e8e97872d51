"""What an importer collects from a file, in columns: times in nanoseconds, names as numbers."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unstarve.errors import ProfileError

Times = NDArray[np.int64]
LATEST_NS = 1 << 61
"""Stamps past this are not times; sums of two still fit."""


class Column:
    """Intervals of one kind, each with a few numbers beside it."""

    def __init__(self, *extra: str) -> None:
        self._begin = array("q")
        self._end = array("q")
        self._extra = {name: array("q") for name in extra}

    def __len__(self) -> int:
        return len(self._begin)

    def add(self, begin_ns: int, end_ns: int, *extra: int) -> None:
        """Append one; an interval that ends before it begins, or outside of time, is left out."""
        if not 0 <= begin_ns <= end_ns < LATEST_NS:
            return
        self._begin.append(begin_ns)
        self._end.append(end_ns)
        for values, value in zip(self._extra.values(), extra, strict=True):
            values.append(value)

    @property
    def begin(self) -> Times:
        return np.frombuffer(self._begin, np.int64) if self._begin else np.zeros(0, np.int64)

    @property
    def end(self) -> Times:
        return np.frombuffer(self._end, np.int64) if self._end else np.zeros(0, np.int64)

    def of(self, name: str) -> Times:
        """The numbers beside the intervals."""
        values = self._extra[name]
        return np.frombuffer(values, np.int64) if values else np.zeros(0, np.int64)


class Names:
    """Texts, numbered in the order in which they come."""

    _MOST = 1_000_000
    _LONGEST = 500

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self.texts: list[str] = []

    def number(self, text: str) -> int:
        """The number of a text. Raises ProfileError when a file holds an absurd number of them."""
        text = text[: self._LONGEST]
        found = self._numbers.get(text)
        if found is None:
            if len(self.texts) >= self._MOST:
                raise ProfileError(
                    f"more than {self._MOST} different names: this is not a training's profile"
                )
            found = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return found


COPY_KINDS = ("HtoD", "DtoH", "DtoD", "PtoP")
MEMORIES = ("", "pageable", "pinned")


@dataclass(slots=True)
class Capture:
    """Everything taken from one file."""

    source: str
    tool: str = ""
    names: Names = field(default_factory=Names)
    kernels: Column = field(default_factory=lambda: Column("device", "name", "link", "call"))
    """Graph launches, too. `link` is the operator that launched it, `call` the call of the runtime, as in
    `launches`; −1 when unknown."""
    copies: Column = field(
        default_factory=lambda: Column("device", "kind", "memory", "bytes", "link", "call")
    )
    fills: Column = field(default_factory=lambda: Column("device", "call"))
    launches: Column = field(default_factory=lambda: Column("call"))
    """Calls of the CUDA runtime that give a device work."""
    host: Column = field(
        default_factory=lambda: Column("thread", "name", "link", "operator", "shape", "stack")
    )
    """Operators, annotations, calls of the CUDA runtime. `shape` and `stack` are names, −1 when unknown."""
    frames: Column = field(default_factory=lambda: Column("thread", "name"))
    """Python functions, but none of torch's."""
    waits: Column = field(default_factory=lambda: Column("thread", "name"))
    """``next(loader)`` in a training process."""
    steps: Column = field(default_factory=lambda: Column("thread"))
    memory: Column = field(
        default_factory=lambda: Column("thread", "device", "bytes", "allocated", "reserved")
    )
    """Moments of allocations, and of frees with negative `bytes`; `allocated` and `reserved` are totals, −1
    when unknown. `device` as in `importers.device_memory`."""
    calls: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    """By process and name: calls, nanoseconds."""
    files: dict[tuple[int, str], list[int]] = field(default_factory=dict)
    """By process and path: opens, reads, bytes, nanoseconds."""
    bounds: tuple[int, int] = (0, 0)
    """The time that calls cover."""

    @property
    def window(self) -> tuple[int, int]:
        """Beginning and end of what was recorded: of the steps, where there are any."""
        marked = self.steps if len(self.steps) else None
        columns = [marked] if marked is not None else [self.kernels, self.copies, self.host, self.waits]
        filled = [column for column in columns if len(column)]
        if not filled:
            return self.bounds
        return int(min(c.begin.min() for c in filled)), int(max(c.end.max() for c in filled))
