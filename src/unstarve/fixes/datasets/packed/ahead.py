"""Whole chunks, read before their samples are asked for.

A sampler that visits chunks tells the order (an itinerary); from then on the chunks of a group are read with
long sequential reads by threads, one group ahead of the one in use. Past the page cache, they are read into
memory of our own and batches are copied out of it; through the page cache, the kernel is told to read them.

A group is read part by part, and the next part, also that of the next group, is on its way before one is
there: storage never waits for Python.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from unstarve.fixes.datasets.packed.access import Access, Offsets, pieces
from unstarve.fixes.datasets.packed.contents import Contents
from unstarve.fixes.datasets.packed.file import Memory
from unstarve.fixes.datasets.packed.format import BLOCK_BYTES
from unstarve.fixes.datasets.packed.sampler import Itinerary
from unstarve.fixes.datasets.packed.source import Numbers, record_places
from unstarve.fixes.memory.buffers import fresh_memory
from unstarve.fixes.samples.gather import gather, gather_at

_GROUPS_AHEAD = 1
_MOST_GROUPS = 4
"""Groups in memory at most; what is asked for beyond is read for itself."""

_PART_BYTES = 16 << 20
"""Read by one call: many long reads at once."""
_PARTS_AT_ONCE = 2

_SLACK = 8
"""An eighth more: groups of as many samples differ by a few blocks, and use each other's memory."""


class Ahead:
    """Reads one epoch's chunks ahead, for the process that began it.

    `spare` is memory to read into, from an epoch before.
    """

    def __init__(self, contents: Contents, access: Access, itinerary: Itinerary, spare: list[Memory]) -> None:
        self._contents = contents
        self._access = access
        self._itinerary = itinerary
        self._pid = os.getpid()
        chunks = -(-itinerary.count // itinerary.chunk)
        self._group_of_chunk = np.full(chunks, -1, np.int64)
        for number, group in enumerate(itinerary.groups):
            self._group_of_chunk[group] = number
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._loads: dict[int, Loaded] = {}
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
                self._spare.append(loaded.memory)

    def close(self) -> list[Memory]:
        """Read no further, and leave the memory that is not in use to another."""
        if self._threads is None or self._pid != os.getpid():
            return []
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            spare, self._spare = self._spare, []
            return spare

    def _loaded(self, group: int) -> Loaded | None:
        self._begin(group, self._load)
        with self._lock:
            loaded = self._loads.get(group)
            if loaded is None:
                return None
            self._users[group] += 1
        loaded.wait()
        return loaded

    def _begin(self, group: int, how: Any) -> None:
        """Begin all groups up to this one and those ahead of it."""
        with self._lock:
            last = min(group + _GROUPS_AHEAD, len(self._itinerary.groups) - 1)
            while self._next <= last and len(self._loads) < _MOST_GROUPS:
                if self._threads is None:
                    self._threads = ThreadPoolExecutor(_PARTS_AT_ONCE, thread_name_prefix="unstarve-chunks")
                how(self._next, self._itinerary.samples(self._next), self._threads)
                self._next += 1

    def _load(self, group: int, samples: Numbers, threads: ThreadPoolExecutor) -> None:
        self._left[group] = len(samples)
        self._users[group] = 0
        spare = self._spare.pop() if self._spare else None
        self._loads[group] = Loaded(group, samples, self._contents, self._access, spare)
        self._loads[group].begin(threads)

    def _advise(self, group: int, samples: Numbers, threads: ThreadPoolExecutor) -> None:
        threads.submit(advise, self._contents, self._access, samples)


def advise(contents: Contents, access: Access, samples: Numbers) -> None:
    """Have the kernel read these samples into the page cache, neighbours at once."""
    offsets, sizes = _stretches(contents, access, samples)
    for offset, size in zip(offsets.tolist(), sizes.tolist(), strict=True):
        contents.file.expect(offset, size)


def _stretches(contents: Contents, access: Access, samples: Numbers) -> tuple[Numbers, Numbers]:
    """The parts of the file that hold these samples, neighbours in one: where they start, and their sizes."""
    file = contents.file
    numbers, is_record = contents.place(samples)
    firsts, ends = _runs(np.sort(numbers[~is_record]))
    columns = [column for column in file.index.columns if not access.is_kept(column)]
    offsets = [column.offset + firsts * column.row_bytes for column in columns]
    sizes = [(ends - firsts) * column.row_bytes for column in columns]
    firsts, ends = _runs(np.sort(numbers[is_record]))
    first_offsets, _ = record_places(file, firsts)
    last_offsets, last_sizes = record_places(file, ends - 1)
    return (
        np.concatenate([*offsets, first_offsets]),
        np.concatenate([*sizes, last_offsets + last_sizes - first_offsets]),
    )


def _runs(numbers: Numbers) -> tuple[Numbers, Numbers]:
    """Runs of consecutive numbers: their firsts and ends."""
    if not len(numbers):
        return numbers, numbers
    cuts = np.flatnonzero(np.diff(numbers) > 1)
    return numbers[np.concatenate(([0], cuts + 1))], numbers[np.concatenate((cuts, [-1]))] + 1


class Loaded:
    """All samples of a group in memory, read past the page cache: a source of their bytes after `wait`."""

    def __init__(
        self, group: int, samples: Numbers, contents: Contents, access: Access, spare: Memory | None
    ) -> None:
        self.group = group
        self._file = contents.file
        self._access = access
        offsets, sizes = _stretches(contents, access, samples)
        order = np.argsort(offsets)
        # Whole blocks, at blocks of the memory: storage writes into it without a copy in between.
        self._starts = offsets[order] // BLOCK_BYTES * BLOCK_BYTES
        ends = -(-(offsets[order] + sizes[order]) // BLOCK_BYTES) * BLOCK_BYTES
        room = ends - self._starts
        self._slots = np.cumsum(room) - room
        size_bytes = int(room.sum())
        if spare is None or spare.size < size_bytes:
            spare = fresh_memory(size_bytes + size_bytes // _SLACK)
        self.memory = spare
        self._lengths = np.minimum(ends, self._file.size_bytes) - self._starts
        self._parts: list[Future[None]] = []

    def begin(self, threads: ThreadPoolExecutor) -> None:
        """Have all of it read, in order."""
        offsets, sizes, to = pieces(self._starts, self._lengths, self._slots)
        part = np.cumsum(sizes) // _PART_BYTES
        cuts = np.flatnonzero(np.diff(part)) + 1
        split = (np.split(each, cuts) for each in (offsets, sizes, to))
        self._parts = [threads.submit(self._read, *some) for some in zip(*split, strict=True)]

    def wait(self) -> None:
        """Return when all of it is there; raises what reading it raised."""
        for part in self._parts:
            part.result()

    def _read(self, offsets: Offsets, sizes: Offsets, to: Offsets) -> None:
        self._file.check_size()
        self._access.fetch(offsets, sizes, self.memory, to, "direct")

    def rows(self, column: int, rows: Numbers, out: Memory) -> None:
        """Copy rows of a column into `out`."""
        at = self._file.index.columns[column]
        if self._access.is_kept(at):
            gather(self._access.keep(column), rows, out)
            return
        gather_at(self.memory, self._places(at.offset + rows * at.row_bytes), out)

    def records(self, numbers: Numbers) -> list[Memory]:
        """Copies of the bytes of records."""
        offsets, sizes = record_places(self._file, numbers)
        return [
            self.memory[start : start + size].copy()
            for start, size in zip(self._places(offsets).tolist(), sizes.tolist(), strict=True)
        ]

    def _places(self, offsets: Numbers) -> Numbers:
        """Where bytes of the file are in memory."""
        at = np.searchsorted(self._starts, offsets, "right") - 1
        places: Numbers = self._slots[at] + offsets - self._starts[at]
        return places
