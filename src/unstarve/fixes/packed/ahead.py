"""Whole chunks, read before their samples are asked for.

A sampler that visits chunks tells the order (an itinerary); from then on the chunks of a group are read with
long sequential reads by a thread, one group ahead of the one in use, and batches are copied out of memory.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstarve.fixes.gather import gather
from unstarve.fixes.packed.access import Access
from unstarve.fixes.packed.contents import Contents
from unstarve.fixes.packed.file import Memory
from unstarve.fixes.packed.sampler import Itinerary
from unstarve.fixes.packed.source import Numbers, column_rows, record_places

_GROUPS_AHEAD = 1
_MOST_GROUPS = 4
"""Groups in memory at most; what is asked for beyond is read for itself."""


class Ahead:
    """Reads one epoch's chunks ahead, for the process that began it."""

    def __init__(self, contents: Contents, access: Access, itinerary: Itinerary) -> None:
        self._contents = contents
        self._access = access
        self._itinerary = itinerary
        self._pid = os.getpid()
        chunks = -(-itinerary.count // itinerary.chunk)
        self._group_of_chunk = np.full(chunks, -1, np.int64)
        for number, group in enumerate(itinerary.groups):
            self._group_of_chunk[group] = number
        self._lock = threading.Lock()
        self._thread: ThreadPoolExecutor | None = None
        self._loads: dict[int, Future[Loaded]] = {}
        self._left: dict[int, int] = {}
        self._next = 0  # the first group that was not yet asked for
        self._spare: list[list[Memory | None]] = []

    def split(self, samples: Numbers) -> list[tuple[int, Numbers, Loaded | None]]:
        """Cut a batch where the group changes: position, samples, and what was read of them ahead.

        None stands for samples that must be read now. Each part that has something must be given back
        with `done`.
        """
        groups = self._group_of_chunk[samples // self._itinerary.chunk]
        starts = np.flatnonzero(np.concatenate(([True], groups[1:] != groups[:-1])))
        ends = [*starts[1:].tolist(), len(samples)]
        return [
            (start, samples[start:end], self._loaded(int(groups[start])))
            for start, end in zip(starts.tolist(), ends, strict=True)
        ]

    def done(self, loaded: Loaded, count: int) -> None:
        """Say that so many samples were copied out; the memory of a group that is used up is used again."""
        with self._lock:
            self._left[loaded.group] -= count
            if self._left[loaded.group] == 0:
                del self._loads[loaded.group], self._left[loaded.group]
                self._spare.append(loaded.columns)

    def close(self) -> None:
        """Read no further."""
        if self._thread is not None and self._pid == os.getpid():
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _loaded(self, group: int) -> Loaded | None:
        if os.getpid() != self._pid:  # a worker forked off: it has neither thread nor memory for this
            return None
        with self._lock:
            last = min(group + _GROUPS_AHEAD, len(self._itinerary.groups) - 1)
            while self._next <= last and len(self._loads) < _MOST_GROUPS:
                self._start_next()
            load = self._loads.get(group)
        return None if load is None else load.result()

    def _start_next(self) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="unstarve-chunks")
        group, self._next = self._next, self._next + 1
        samples = self._itinerary.samples(group)
        self._left[group] = len(samples)
        spare = self._spare.pop() if self._spare else []
        self._loads[group] = self._thread.submit(Loaded, group, samples, self._contents, self._access, spare)


class Loaded:
    """All samples of a group in memory: a source of their bytes."""

    def __init__(
        self, group: int, samples: Numbers, contents: Contents, access: Access, spare: list[Memory | None]
    ) -> None:
        self.group = group
        self._file = contents.file
        self._file.check_size()
        numbers, is_record = contents.place(samples)
        self._rows = np.sort(numbers[~is_record])
        self._records = np.sort(numbers[is_record])
        way = "direct" if access.way() == "direct" else "pread"
        self.columns = [
            self._read_column(number, access, way, spare) for number in range(len(contents.index.columns))
        ]
        self._places: NDArray[np.int64] = np.empty(0, np.int64)
        self._memory = self._read_records(access, way)

    def rows(self, column: int, rows: Numbers, out: Memory) -> None:
        """Copy rows of a column into `out`."""
        memory = self.columns[column]
        if memory is None:
            gather(column_rows(self._file, column), rows, out)
        else:
            gather(memory, np.searchsorted(self._rows, rows), out)

    def records(self, numbers: Numbers) -> list[Memory]:
        """Copies of the bytes of records."""
        _, sizes = record_places(self._file, numbers)
        starts = self._places[np.searchsorted(self._records, numbers)]
        return [
            self._memory[start : start + size].copy()
            for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
        ]

    def _read_column(self, number: int, access: Access, way: str, spare: list[Any]) -> Memory | None:
        at = self._file.index.columns[number]
        if access.is_kept(at):
            return None
        count = len(self._rows)
        memory: Memory = spare[number] if spare else np.empty((count, at.row_bytes), np.uint8)
        if len(memory) < count:
            memory = np.empty((count, at.row_bytes), np.uint8)
        sizes = np.full(count, at.row_bytes, np.int64)
        to = np.arange(count, dtype=np.int64) * at.row_bytes
        access.fetch(at.offset + self._rows * at.row_bytes, sizes, memory, to, way)
        return memory

    def _read_records(self, access: Access, way: str) -> Memory:
        if not len(self._records):
            return np.empty(0, np.uint8)
        offsets, sizes = record_places(self._file, self._records)
        # As in the file, so that neighbours are one read; where a chunk ends, the next begins at once.
        ends = offsets + sizes
        steps = np.where(offsets[1:] - ends[:-1] < 4096, offsets[1:] - offsets[:-1], sizes[:-1])
        self._places = np.concatenate(([0], np.cumsum(steps)))
        memory = np.empty(int(self._places[-1] + sizes[-1]), np.uint8)
        access.fetch(offsets, sizes, memory, self._places, way)
        return memory
