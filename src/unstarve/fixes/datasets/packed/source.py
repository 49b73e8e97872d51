"""Where the bytes of samples are taken from: the file itself, one way or another."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unstarve.fixes.datasets.packed.access import Access
from unstarve.fixes.datasets.packed.file import Memory, PackedFile
from unstarve.fixes.datasets.packed.format import record_alignment
from unstarve.fixes.samples.gather import gather

Numbers = NDArray[np.int64]


class Source(Protocol):
    """Gives bytes of a packed file, safe to share between threads."""

    def rows(self, column: int, rows: Numbers, out: Memory) -> None:
        """Copy rows of a column into `out`, which has a row of bytes for each."""
        ...

    def records(self, numbers: Numbers) -> list[Memory]:
        """The bytes of records, in memory that belongs to the caller."""
        ...


class FileSource:
    """The file, read now. `way` is view, pread or direct."""

    def __init__(self, access: Access, way: str) -> None:
        self._access = access
        self._way = way

    def rows(self, column: int, rows: Numbers, out: Memory) -> None:
        """Copy rows of a column into `out`."""
        at = self._access.file.index.columns[column]
        if self._way == "view":
            gather(column_rows(self._access.file, column), rows, out)
            return
        kept = self._access.keep(column) if self._access.is_kept(at) else self._access.kept(column)
        if kept is not None:
            gather(kept, rows, out)
            return
        sizes = np.full(len(rows), at.row_bytes, np.int64)
        to = np.arange(len(rows), dtype=np.int64) * at.row_bytes
        self._access.fetch(at.offset + rows * at.row_bytes, sizes, out, to, self._way)

    def row(self, column: int, row: int) -> Memory:
        """One row of a column, in memory of its own."""
        at = self._access.file.index.columns[column]
        offset = at.offset + row * at.row_bytes
        kept = self._access.kept(column)
        if kept is not None:
            return kept[row : row + 1].reshape(-1).copy()
        if self._way == "view":
            return self._access.file.memory(offset, at.row_bytes).copy()
        return self._access.fetch_one(offset, at.row_bytes, self._way)

    def records(self, numbers: Numbers) -> list[Memory]:
        """The bytes of records."""
        file = self._access.file
        offsets, sizes = record_places(file, numbers)
        to = _room_for(sizes)
        whole = np.empty(int(to[-1] + sizes[-1]) if len(to) else 0, np.uint8)
        if self._way == "view":
            for offset, size, start in zip(offsets.tolist(), sizes.tolist(), to.tolist(), strict=True):
                whole[start : start + size] = file.memory(offset, size)
        else:
            self._access.fetch(offsets, sizes, whole, to, self._way)
        return [whole[start : start + size] for start, size in zip(to.tolist(), sizes.tolist(), strict=True)]


def column_rows(file: PackedFile, column: int) -> Memory:
    """A column on the file's map, as rows of bytes."""
    at = file.index.columns[column]
    return file.memory(at.offset, file.index.rows * at.row_bytes).reshape(file.index.rows, at.row_bytes)


def record_places(file: PackedFile, numbers: Numbers) -> tuple[Numbers, Numbers]:
    """Where records start in the file, and their sizes in bytes."""
    rows = file.records[numbers]
    return rows["offset"].astype(np.int64), rows["size"].astype(np.int64)


def _room_for(sizes: Numbers) -> Numbers:
    """Where each record goes in memory: with the gaps of the file, so that neighbours can be read at once."""
    starts = []
    end = 0
    for size in sizes.tolist():
        start = -(-end // (alignment := record_alignment(size))) * alignment
        starts.append(start)
        end = start + size
    return np.array(starts, np.int64)
