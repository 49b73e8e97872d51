"""How the bytes of a packed file reach memory, and which way is right now.

pread   many reads at once, which leave the bytes in the page cache for the next epoch
direct  many reads at once past the page cache: right for files that memory cannot hold
view    from the file's map, for who asks for it: nobody may cut the file short meanwhile

Columns of short rows, and a small file that is in the page cache, are read once and kept in our own memory.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstarve.errors import DataFileError, UsageError
from unstarve.fixes.datasets.packed.file import Memory, PackedFile
from unstarve.fixes.datasets.packed.format import BLOCK_BYTES
from unstarve.fixes.datasets.packed.index import Column, read_exactly
from unstarve.fixes.datasets.packed.warming import Warming
from unstarve.fixes.io.page_cache import residency
from unstarve.fixes.io.reading import FD, LENGTH, OFFSET, OUT, TO, blank_plan, read_plan
from unstarve.fixes.memory.buffers import fresh_memory
from unstarve.machine import available_bytes

READS = ("auto", "view", "pread", "direct")

_WARM = 0.95
"""Share of the file in the page cache from which on reading it whole is worth it."""
_FITS = 0.5
"""Share of the available memory that a file may take up in the page cache."""
_PROBE_S = 1.0
_PROBE_SHARE = 0.01
"""Of the time that looking may take: the kernel counts a large file page by page."""
_KEPT_BYTES = 64 << 20
"""Of a column of short rows that each process has in its memory."""
_WHOLE_BYTES = 512 << 20
_WHOLE_SHARE = 0.125
"""Of a file, and of the available memory, that the process which makes the batches has in its memory."""
_PIECE_BYTES = 1 << 20
"""One long read is several of these, so that they are on their way together."""

Offsets = NDArray[np.int64]


class Access:
    """Reads of one packed file, safe to share between threads."""

    def __init__(self, file: PackedFile, read: str) -> None:
        if read not in READS:
            raise UsageError(f"read must be one of {', '.join(READS)}, not {read!r}")
        if read == "direct" and file.direct_fd is None:
            raise UsageError(
                f"{file.path} is on a file system without O_DIRECT: choose read='pread' or 'auto'"
            )
        self.file = file
        self.read = read
        self._chosen = "pread" if read == "auto" else read
        self._probe_at = 0.0
        self._is_warm = False
        self._columns: dict[int, Memory] = {}
        self.warming = Warming(file) if read == "auto" else None
        """Who knows a better order to bring the file into memory may take it away."""
        for column in file.index.columns:
            if self.is_kept(column):
                file.expect(column.offset, column.row_bytes * file.index.rows)

    def is_kept(self, column: Column) -> bool:
        """Whether a column is kept in memory, however others are read: a label is no read alone."""
        return column.row_bytes < BLOCK_BYTES and column.row_bytes * self.file.index.rows <= _KEPT_BYTES

    def kept(self, number: int) -> Memory | None:
        """A column in memory of our own, as rows of bytes; None where it has not been read."""
        return self._columns.get(number)

    def keep(self, number: int) -> Memory:
        """Read a column into memory of our own, if it is not there. Threads may both read it, and agree."""
        found = self._columns.get(number)
        if found is None:
            column, rows = self.file.index.columns[number], self.file.index.rows
            size_bytes = column.row_bytes * rows
            memory = fresh_memory(size_bytes)
            offsets, sizes, to = np.array([[column.offset], [size_bytes], [0]], np.int64)
            self.fetch(offsets, sizes, memory, to, "pread")
            found = self._columns[number] = memory.reshape(rows, column.row_bytes)
        return found

    def keep_all(self) -> list[Memory] | None:
        """All columns in memory of our own; None where "auto" finds them too large, or not in memory now."""
        columns = range(len(self.file.index.columns))
        if not all(number in self._columns for number in columns):
            most_bytes = min(_WHOLE_BYTES, _WHOLE_SHARE * available_bytes())
            if self.read != "auto" or self.file.index.footer.index_offset > most_bytes:
                return None
            if self.way() == "direct" or not self._is_warm:
                return None
        return [self.keep(number) for number in columns]

    def way(self) -> str:
        """One of view, pread, direct; "auto" looks again every second, and takes pread or direct."""
        now = time.monotonic()
        if self.read == "auto" and now >= self._probe_at:
            self._probe_at = now + _PROBE_S  # other threads go on with what was chosen before
            self._chosen = self._choose()
            taken = time.monotonic() - now
            self._probe_at = now + max(_PROBE_S, taken / _PROBE_SHARE)
        return self._chosen

    def _choose(self) -> str:
        resident = residency(self.file.fd)
        self._is_warm = resident is not None and resident >= _WARM
        missing = self.file.size_bytes * (1 - (resident or 0))
        if self.file.direct_fd is None or missing <= _FITS * available_bytes():
            return "pread"
        return "direct"

    def fetch(self, offsets: Offsets, size_bytes: Offsets, out: Any, to: Offsets, way: str) -> None:
        """Read stretches of the file into `out`, an array or tensor; `to` says where each goes, in bytes.

        `way` is pread or direct. DataFileError where the file has become shorter, OSError from the storage.
        """
        offsets, size_bytes, to = pieces(offsets, size_bytes, to)
        if way == "pread" and self.warming is not None:
            self.warming.demand(int(size_bytes.sum()))
        plan = blank_plan(len(offsets))
        direct_fd = self.file.direct_fd if way == "direct" else None
        plan[:, FD] = self.file.fd if direct_fd is None else direct_fd
        plan[:, OFFSET] = offsets
        plan[:, LENGTH] = size_bytes
        plan[:, OUT] = 0
        plan[:, TO] = to
        outcome = read_plan(plan, None, [out], direct=direct_fd is not None)
        for failure in outcome.failures[:1]:
            if failure.error:
                raise OSError(failure.error, os.strerror(failure.error), self.file.path)
            raise DataFileError(
                f"{self.file.path} has become shorter since it was opened; is it being written?"
            )

    def fetch_one(self, offset: int, size_bytes: int, way: str) -> Memory:
        """Read one stretch of the file, without the threads that many would need."""
        if way != "direct":
            if self.warming is not None:
                self.warming.demand(size_bytes)
            return np.frombuffer(read_exactly(self.file.fd, offset, size_bytes, self.file.path), np.uint8)
        out = np.empty(size_bytes, np.uint8)
        self.fetch(np.array([offset]), np.array([size_bytes]), out, np.array([0]), way)
        return out


def neighbours(offsets: Offsets, size_bytes: Offsets, to: Offsets) -> tuple[Offsets, Offsets, Offsets]:
    """Make one stretch of those that follow each other both in the file and in memory.

    A gap below a block between two, as large in memory as in the file, is read along.
    """
    if len(offsets) < 2:
        return offsets, size_bytes, to
    ends = offsets + size_bytes
    gaps = offsets[1:] - ends[:-1]
    follows = (gaps >= 0) & (gaps < BLOCK_BYTES) & (to[1:] - to[:-1] == offsets[1:] - offsets[:-1])
    first = np.flatnonzero(np.concatenate(([True], ~follows)))
    last = np.concatenate((first[1:] - 1, [len(offsets) - 1]))
    return offsets[first], ends[last] - offsets[first], to[first]


def pieces(offsets: Offsets, size_bytes: Offsets, to: Offsets) -> tuple[Offsets, Offsets, Offsets]:
    """Cut long stretches, at blocks of the storage; make one of those that follow each other first."""
    offsets, size_bytes, to = neighbours(offsets, size_bytes, to)
    if not len(size_bytes) or int(size_bytes.max()) <= _PIECE_BYTES:
        return offsets, size_bytes, to
    cuts: list[tuple[int, int, int]] = []
    for offset, size, where in zip(offsets.tolist(), size_bytes.tolist(), to.tolist(), strict=True):
        at, end = offset, offset + size
        while at < end:
            stop = min((at + _PIECE_BYTES) // BLOCK_BYTES * BLOCK_BYTES, end)
            cuts.append((at, stop - at, where + at - offset))
            at = stop
    cut = np.array(cuts, np.int64)
    return cut[:, 0], cut[:, 1], cut[:, 2]
