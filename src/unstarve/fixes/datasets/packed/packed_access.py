"""How the bytes of a packed file reach memory.

pread   many reads at once through the page cache, which keeps the bytes for the next epoch
direct  many reads at once past the page cache: for files larger than memory
view    from the file's map, only if asked for: the file must not be truncated meanwhile

Columns of short rows, and a small file that is in the page cache, are read once and kept in our own memory.

A cold file that fits into memory is read ahead from front to back while samples are read at random. Storage
is fastest at long sequential reads, ten times and more on a spinning or remote disk, so the first epoch takes
about as long as reading the file once, in whatever order samples are asked for.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from unstarve.errors import DataFileError, UsageError
from unstarve.fixes.datasets.packed.packed_file import Memory, PackedColumn, PackedFile, read_exactly
from unstarve.fixes.datasets.packed.packed_format import BLOCK_BYTES, record_alignment
from unstarve.fixes.io.page_cache import residency
from unstarve.fixes.io.reading import FD, LENGTH, OFFSET, OUT, TO, blank_plan, read_plan
from unstarve.fixes.memory.buffers import fresh_memory
from unstarve.fixes.samples.gather import gather
from unstarve.machine import available_bytes

READS = ("auto", "view", "pread", "direct")

_WARM = 0.95
"""Share of the file that must be in the page cache before all of it is read into our memory."""
_FITS = 0.5
"""Share of the available memory that a file may take in the page cache."""
_PROBE_S = 1.0
_PROBE_SHARE = 0.01
"""Most of the time that asking may take: the kernel checks a large file page by page."""
_KEPT_BYTES = 64 << 20
"""Largest column of short rows that each process keeps in its memory."""
_WHOLE_BYTES = 512 << 20
_WHOLE_SHARE = 0.125
"""Largest file, and share of the available memory, that is kept whole in memory."""
_PIECE_BYTES = 1 << 20
"""Long reads are split into pieces of this size, which are in flight together."""

Offsets = NDArray[np.int64]


class PackedAccess:
    """Reads one packed file. Thread-safe."""

    def __init__(self, file: PackedFile, read: str) -> None:
        if read not in READS:
            raise UsageError(f"read must be one of {', '.join(READS)}, got {read!r}")
        if read == "direct" and file.direct_fd is None:
            raise UsageError(f"{file.path} is on a file system without O_DIRECT: use read='pread' or 'auto'")
        self.file = file
        self.read = read
        self._chosen = "pread" if read == "auto" else read
        self._probe_at = 0.0
        self._is_warm = False
        self._columns: dict[int, Memory] = {}
        self.warming = Warming(file) if read == "auto" else None
        """Set to None by a sampler that knows in which order to read the file."""
        for column in file.index.columns:
            if self.is_kept(column):
                file.expect(column.offset, column.row_bytes * file.index.rows)

    def is_kept(self, column: PackedColumn) -> bool:
        """Whether a column is kept in memory however others are read: a label is not worth a read."""
        return column.row_bytes < BLOCK_BYTES and column.row_bytes * self.file.index.rows <= _KEPT_BYTES

    def kept(self, number: int) -> Memory | None:
        """Return a column in our own memory, as rows of bytes; None if it was not read yet."""
        return self._columns.get(number)

    def keep(self, number: int) -> Memory:
        """Return a column in our own memory; read it first if needed. Two threads may both read it."""
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
        """Return all columns in our own memory; None if "auto" finds the file too large or not cached."""
        columns = range(len(self.file.index.columns))
        if not all(number in self._columns for number in columns):
            most_bytes = min(_WHOLE_BYTES, _WHOLE_SHARE * available_bytes())
            if self.read != "auto" or self.file.index.footer.index_offset > most_bytes:
                return None
            if self.way() == "direct" or not self._is_warm:
                return None
        return [self.keep(number) for number in columns]

    def way(self) -> str:
        """Return view, pread or direct; "auto" chooses between pread and direct every second."""
        now = time.monotonic()
        if self.read == "auto" and now >= self._probe_at:
            self._probe_at = now + _PROBE_S  # other threads use the last choice meanwhile
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
        """Read stretches of the file into `out`, an array or tensor, each to its byte offset in `to`.

        `way` is pread or direct. Raises DataFileError if the file was truncated, OSError from the storage.
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
            raise DataFileError(f"{self.file.path} was truncated since it was opened; is it being written?")

    def fetch_one(self, offset: int, size_bytes: int, way: str) -> Memory:
        """Read one stretch of the file in this thread."""
        if way != "direct":
            if self.warming is not None:
                self.warming.demand(size_bytes)
            return np.frombuffer(read_exactly(self.file.fd, offset, size_bytes, self.file.path), np.uint8)
        out = np.empty(size_bytes, np.uint8)
        self.fetch(np.array([offset]), np.array([size_bytes]), out, np.array([0]), way)
        return out


def neighbours(offsets: Offsets, size_bytes: Offsets, to: Offsets) -> tuple[Offsets, Offsets, Offsets]:
    """Join stretches that follow each other both in the file and in memory.

    A gap of less than a block between two, if it is the same in memory, is read too.
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
    """Join neighbouring stretches, then cut long ones at block boundaries."""
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


_AHEAD_OF_DEMAND = 4
"""Bytes read ahead per byte asked for: looking at a few samples must not read the whole file."""
_WARMING_STEP_BYTES = 64 << 20
"""Bytes per step; the process cannot end before the kernel has accepted a step."""
_WARMING_PIECE_BYTES = 8 << 20


class Warming:
    """Reads one file ahead into the page cache. Thread-safe."""

    def __init__(self, file: PackedFile) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._wanted = 0
        self._reached = 0
        self._thread: ThreadPoolExecutor | None = None
        self._step: Future[None] | None = None

    def demand(self, size_bytes: int) -> None:
        """Note that bytes are about to be read; a thread reads more ahead."""
        if self._pid != os.getpid():  # a forked worker: the thread exists only in the parent
            self._lock = threading.Lock()
            self._begin()
        with self._lock:
            self._wanted += size_bytes
            target = min(
                self._wanted * _AHEAD_OF_DEMAND, self._reached + _WARMING_STEP_BYTES, self._file.size_bytes
            )
            if target <= self._reached or (self._step is not None and not self._step.done()):
                return
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="unstarve-warming")
            self._step = self._thread.submit(self._read_ahead, self._reached, target)
            self._reached = target

    def _read_ahead(self, start: int, end: int) -> None:
        for offset in range(start, end, _WARMING_PIECE_BYTES):
            self._file.expect(offset, min(_WARMING_PIECE_BYTES, end - offset))


Numbers = NDArray[np.int64]


class SampleSource(Protocol):
    """Supplies the bytes of samples. Thread-safe."""

    def rows(self, column: int, rows: Numbers, out: Memory) -> None:
        """Copy rows of a column into the rows of `out`."""
        ...

    def records(self, numbers: Numbers) -> list[Memory]:
        """Return the bytes of records, in memory that belongs to the caller."""
        ...


class FileSource:
    """Reads from the file when asked. `way` is view, pread or direct."""

    def __init__(self, access: PackedAccess, way: str) -> None:
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
        """Return a copy of one row of a column."""
        at = self._access.file.index.columns[column]
        offset = at.offset + row * at.row_bytes
        kept = self._access.kept(column)
        if kept is not None:
            return kept[row : row + 1].reshape(-1).copy()
        if self._way == "view":
            return self._access.file.memory(offset, at.row_bytes).copy()
        return self._access.fetch_one(offset, at.row_bytes, self._way)

    def records(self, numbers: Numbers) -> list[Memory]:
        """Return the bytes of records."""
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
    """Return a column of the file's map, as rows of bytes."""
    at = file.index.columns[column]
    return file.memory(at.offset, file.index.rows * at.row_bytes).reshape(file.index.rows, at.row_bytes)


def record_places(file: PackedFile, numbers: Numbers) -> tuple[Numbers, Numbers]:
    """Return where records start in the file, and their sizes in bytes."""
    rows = file.records[numbers]
    return rows["offset"].astype(np.int64), rows["size"].astype(np.int64)


def _room_for(sizes: Numbers) -> Numbers:
    """Return where each record goes in memory: with the file's gaps, so that neighbours are read at once."""
    starts = []
    end = 0
    for size in sizes.tolist():
        start = -(-end // (alignment := record_alignment(size))) * alignment
        starts.append(start)
        end = start + size
    return np.array(starts, np.int64)
