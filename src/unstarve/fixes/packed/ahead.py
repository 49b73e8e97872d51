"""Whole chunks, read before their samples are asked for.

A sampler that visits chunks tells the order (an itinerary); from then on the chunks of a group are read with
long sequential reads by a thread, one group ahead of the one in use. Past the page cache, they are read into
memory of our own and batches are copied out of it; through the page cache, the kernel is told to read them.
"""

from __future__ import annotations

import mmap
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
from unstarve.fixes.packed.format import BLOCK_BYTES
from unstarve.fixes.packed.sampler import Itinerary
from unstarve.fixes.packed.source import Numbers, column_rows, record_places

_GROUPS_AHEAD = 1
_MOST_GROUPS = 4
"""Groups in memory at most; what is asked for beyond is read for itself."""

Spare = list["list[Memory | None]"]


class Ahead:
    """Reads one epoch's chunks ahead, for the process that began it.

    `spare` is memory to read into, from an epoch before.
    """

    def __init__(self, contents: Contents, access: Access, itinerary: Itinerary, spare: Spare) -> None:
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
        self._left: dict[int, int] = {}  # samples that were not yet copied out, by group
        self._users: dict[int, int] = {}  # threads that copy right now
        self._next = 0  # the first group that was not yet begun
        self._spare = spare

    def split(self, samples: Numbers, way: str) -> list[tuple[int, Numbers, Loaded | None]]:
        """Cut a batch where the group changes: position, samples, and what was read of them ahead.

        None stands for samples that are read now. A part that has something must be given back with `done`.
        """
        if os.getpid() != self._pid:  # a worker forked off: it has no thread to read ahead with
            return [(0, samples, None)]
        groups = self._group_of_chunk[samples // self._itinerary.chunk]
        if way != "direct":
            self._begin(int(groups.max()), self._advise)
            return [(0, samples, None)]
        starts = np.flatnonzero(np.concatenate(([True], groups[1:] != groups[:-1])))
        ends = [*starts[1:].tolist(), len(samples)]
        return [
            (start, samples[start:end], self._loaded(int(groups[start])))
            for start, end in zip(starts.tolist(), ends, strict=True)
        ]

    def done(self, loaded: Loaded, count: int) -> None:
        """Say that so many samples were copied out; the memory of a group that is used up is used again."""
        group = loaded.group
        with self._lock:
            self._left[group] -= count
            self._users[group] -= 1
            if self._left[group] <= 0 and self._users[group] == 0:
                del self._loads[group], self._left[group], self._users[group]
                self._spare.append(loaded.columns)

    def close(self) -> Spare:
        """Read no further, and leave the memory that is not in use to another."""
        if self._thread is None or self._pid != os.getpid():
            return []
        self._thread.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            spare, self._spare = self._spare, []
            return spare

    def _loaded(self, group: int) -> Loaded | None:
        self._begin(group, self._load)
        with self._lock:
            load = self._loads.get(group)
            if load is None:
                return None
            self._users[group] += 1
        return load.result()

    def _begin(self, group: int, how: Any) -> None:
        """Begin all groups up to this one and those ahead of it."""
        with self._lock:
            last = min(group + _GROUPS_AHEAD, len(self._itinerary.groups) - 1)
            while self._next <= last and len(self._loads) < _MOST_GROUPS:
                if self._thread is None:
                    self._thread = ThreadPoolExecutor(1, thread_name_prefix="unstarve-chunks")
                how(self._next, self._itinerary.samples(self._next), self._thread)
                self._next += 1

    def _load(self, group: int, samples: Numbers, thread: ThreadPoolExecutor) -> None:
        self._left[group] = len(samples)
        self._users[group] = 0
        spare = self._spare.pop() if self._spare else []
        self._loads[group] = thread.submit(Loaded, group, samples, self._contents, self._access, spare)

    def _advise(self, group: int, samples: Numbers, thread: ThreadPoolExecutor) -> None:
        thread.submit(advise, self._contents, self._access, samples)


def advise(contents: Contents, access: Access, samples: Numbers) -> None:
    """Have the kernel read these samples into the page cache, neighbours at once."""
    file = contents.file
    numbers, is_record = contents.place(samples)
    for column in file.index.columns:
        if not access.is_kept(column):
            for first, end in _runs(np.sort(numbers[~is_record])):
                file.expect(column.offset + first * column.row_bytes, (end - first) * column.row_bytes)
    for first, end in _runs(np.sort(numbers[is_record])):
        offsets, sizes = record_places(file, np.array([first, end - 1]))
        file.expect(int(offsets[0]), int(offsets[1] + sizes[1] - offsets[0]))


def _runs(numbers: Numbers) -> list[tuple[int, int]]:
    """Runs of consecutive numbers: first and end."""
    if not len(numbers):
        return []
    cuts = np.flatnonzero(np.diff(numbers) > 1) + 1
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(numbers, cuts)]


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
        self.columns = [
            self._read_column(number, access, spare) for number in range(len(contents.index.columns))
        ]
        self._places: NDArray[np.int64] = np.empty(0, np.int64)
        self._memory = self._read_records(access)

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

    def _read_column(self, number: int, access: Access, spare: list[Any]) -> Memory | None:
        at = self._file.index.columns[number]
        if access.is_kept(at):
            return None
        count = len(self._rows)
        memory: Memory | None = spare[number] if spare else None
        if memory is None or len(memory) < count:
            memory = _aligned_memory(count * at.row_bytes).reshape(count, at.row_bytes)
        sizes = np.full(count, at.row_bytes, np.int64)
        to = np.arange(count, dtype=np.int64) * at.row_bytes
        access.fetch(at.offset + self._rows * at.row_bytes, sizes, memory, to, "direct")
        return memory

    def _read_records(self, access: Access) -> Memory:
        if not len(self._records):
            return np.empty(0, np.uint8)
        offsets, sizes = record_places(self._file, self._records)
        # As in the file, so that neighbours are one read; where a chunk ends, the next begins at once.
        gaps = offsets[1:] - offsets[:-1] - sizes[:-1]
        steps = sizes[:-1] + np.where(gaps < BLOCK_BYTES, gaps, 0)
        self._places = np.concatenate(([0], np.cumsum(steps)))
        memory = np.empty(int(self._places[-1] + sizes[-1]), np.uint8)
        access.fetch(offsets, sizes, memory, self._places, "direct")
        return memory


def _aligned_memory(size_bytes: int) -> Memory:
    """Memory that storage can write into directly, where a chunk begins at a block of the file."""
    return np.frombuffer(mmap.mmap(-1, max(size_bytes, 1)), np.uint8, size_bytes)
