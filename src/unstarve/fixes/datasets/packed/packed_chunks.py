"""Shuffling by chunks, for slow storage: an order of whole chunks, and reading them ahead.

`ChunkShuffleSampler` visits chunks of neighbouring samples in random order and announces that order (an
`Itinerary`). From then on threads read the chunks of a group with long sequential reads, one group ahead of
the one in use. Direct reads go into our own memory, from which batches are copied; otherwise the kernel is
asked to read the chunks into the page cache.

A group is read part by part, and the next part, even of the next group, is requested before the last one has
arrived: storage never waits for Python.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler

from unstarve.errors import UsageError
from unstarve.fixes.datasets.packed.packed_access import Numbers, Offsets, PackedAccess, pieces, record_places
from unstarve.fixes.datasets.packed.packed_contents import Contents
from unstarve.fixes.datasets.packed.packed_file import Memory
from unstarve.fixes.datasets.packed.packed_format import BLOCK_BYTES
from unstarve.fixes.memory.buffers import fresh_memory
from unstarve.fixes.samples.gather import gather, gather_at

_GROUPS_AHEAD = 1
_MAX_GROUPS = 4
"""In memory; samples of further groups are read one by one."""

_PART_BYTES = 16 << 20
"""Bytes read by one call, as many long reads at once."""
_PARTS_AT_ONCE = 2

_SLACK = 8
"""Allocate an eighth more: groups differ in size by a few blocks and reuse each other's memory."""


class ChunkReader:
    """Reads one epoch's chunks ahead, in the process that began the epoch.

    `spare` is memory from an earlier epoch to read into.
    """

    def __init__(
        self, contents: Contents, access: PackedAccess, itinerary: Itinerary, spare: list[Memory]
    ) -> None:
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
        self._loads: dict[int, LoadedGroup] = {}
        self._left: dict[int, int] = {}  # samples that were not yet copied out, by group
        self._users: dict[int, int] = {}  # threads that copy right now
        self._next = 0  # the first group that was not yet begun
        self._spare = spare

    def split(self, samples: Numbers, way: str) -> list[tuple[int, Numbers, LoadedGroup | None]]:
        """Cut a batch where the group changes: position, samples, and the loaded group that holds them.

        None means that the samples must be read now. Call `done` for every part with a loaded group.
        """
        if os.getpid() != self._pid:  # a forked worker: it has no thread to read ahead with
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

    def done(self, loaded: LoadedGroup, count: int) -> None:
        """Note that `count` samples were copied out; the memory of a used-up group is reused."""
        group = loaded.group
        with self._lock:
            self._left[group] -= count
            self._users[group] -= 1
            if self._left[group] <= 0 and self._users[group] == 0:
                del self._loads[group], self._left[group], self._users[group]
                self._spare.append(loaded.memory)

    def close(self) -> list[Memory]:
        """Stop reading and return the memory that is not in use."""
        if self._threads is None or self._pid != os.getpid():
            return []
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            spare, self._spare = self._spare, []
            return spare

    def _loaded(self, group: int) -> LoadedGroup | None:
        self._begin(group, self._load)
        with self._lock:
            loaded = self._loads.get(group)
            if loaded is None:
                return None
            self._users[group] += 1
        loaded.wait()
        return loaded

    def _begin(self, group: int, how: Any) -> None:
        """Begin all groups up to this one and `_GROUPS_AHEAD` more."""
        with self._lock:
            last = min(group + _GROUPS_AHEAD, len(self._itinerary.groups) - 1)
            while self._next <= last and len(self._loads) < _MAX_GROUPS:
                if self._threads is None:
                    self._threads = ThreadPoolExecutor(_PARTS_AT_ONCE, thread_name_prefix="unstarve-chunks")
                how(self._next, self._itinerary.samples(self._next), self._threads)
                self._next += 1

    def _load(self, group: int, samples: Numbers, threads: ThreadPoolExecutor) -> None:
        self._left[group] = len(samples)
        self._users[group] = 0
        spare = self._spare.pop() if self._spare else None
        self._loads[group] = LoadedGroup(group, samples, self._contents, self._access, spare)
        self._loads[group].begin(threads)

    def _advise(self, group: int, samples: Numbers, threads: ThreadPoolExecutor) -> None:
        threads.submit(advise, self._contents, self._access, samples)


def advise(contents: Contents, access: PackedAccess, samples: Numbers) -> None:
    """Ask the kernel to read these samples into the page cache, neighbours at once."""
    offsets, sizes = _stretches(contents, access, samples)
    for offset, size in zip(offsets.tolist(), sizes.tolist(), strict=True):
        contents.file.expect(offset, size)


def _stretches(contents: Contents, access: PackedAccess, samples: Numbers) -> tuple[Numbers, Numbers]:
    """Return offsets and sizes of the stretches of the file that hold these samples."""
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
    """Return starts and ends of runs of consecutive numbers."""
    if not len(numbers):
        return numbers, numbers
    cuts = np.flatnonzero(np.diff(numbers) > 1)
    return numbers[np.concatenate(([0], cuts + 1))], numbers[np.concatenate((cuts, [-1]))] + 1


class LoadedGroup:
    """All samples of a group in memory, read past the page cache. After `wait` it is a `Source`."""

    def __init__(
        self, group: int, samples: Numbers, contents: Contents, access: PackedAccess, spare: Memory | None
    ) -> None:
        self.group = group
        self._file = contents.file
        self._access = access
        offsets, sizes = _stretches(contents, access, samples)
        order = np.argsort(offsets)
        # Whole blocks at block addresses: storage writes into them without a copy in between.
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
        """Start to read everything, in order."""
        offsets, sizes, to = pieces(self._starts, self._lengths, self._slots)
        part = np.cumsum(sizes) // _PART_BYTES
        cuts = np.flatnonzero(np.diff(part)) + 1
        split = (np.split(each, cuts) for each in (offsets, sizes, to))
        self._parts = [threads.submit(self._read, *some) for some in zip(*split, strict=True)]

    def wait(self) -> None:
        """Wait until everything is read. Raises what reading raised."""
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
        """Return copies of the bytes of records."""
        offsets, sizes = record_places(self._file, numbers)
        return [
            self.memory[start : start + size].copy()
            for start, size in zip(self._places(offsets).tolist(), sizes.tolist(), strict=True)
        ]

    def _places(self, offsets: Numbers) -> Numbers:
        """Return where bytes of the file are in memory."""
        at = np.searchsorted(self._starts, offsets, "right") - 1
        places: Numbers = self._slots[at] + offsets - self._starts[at]
        return places


@dataclass(frozen=True)
class Itinerary:
    """An epoch's order of chunks: `groups` of chunk numbers, visited one after the other."""

    count: int
    chunk: int
    groups: tuple[Numbers, ...]

    def samples(self, group: int) -> Numbers:
        """Return all samples of a group, chunk after chunk."""
        chunks = self.groups[group]
        every = (chunks[:, np.newaxis] * self.chunk + np.arange(self.chunk)).reshape(-1)
        return every[every < self.count]


class ChunkShuffleSampler(Sampler[int]):
    """Every index once, in chunks of neighbours: chunks in random order, samples shuffled within a window.

    `chunk` samples in a row are read as one; `window` chunks are mixed with each other. An epoch draws one
    number from `generator` (None: torch's own), which decides its whole order. The larger the window,
    the closer to a full shuffle and the more memory reading ahead needs.

    Works as ``sampler=`` of any loader, for any dataset that stores neighbours together.
    """

    draws_at_once = True
    """All random numbers of an epoch are drawn with its first index: a loader may pull the rest early."""

    def __init__(
        self,
        source: Sized,
        chunk: int,
        window: int = 8,
        generator: torch.Generator | None = None,
        *,
        on_epoch: Callable[[Itinerary], None] | None = None,
    ) -> None:
        if chunk < 1 or window < 1:
            raise UsageError(f"chunk and window must be >= 1, got {chunk} and {window}")
        self.source = source
        self.chunk = chunk
        self.window = window
        self.generator = generator
        self._on_epoch = on_epoch

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator()
        generator.manual_seed(
            int(torch.empty((), dtype=torch.int64).random_(generator=self.generator).item())
        )
        count = len(self.source)
        order = torch.randperm(-(-count // self.chunk), generator=generator).numpy()
        cuts = range(self.window, len(order), self.window)
        groups = tuple(np.split(order, cuts)) if len(order) else ()
        itinerary = Itinerary(count, self.chunk, groups)
        if self._on_epoch is not None:
            self._on_epoch(itinerary)
        for group in range(len(groups)):
            samples = itinerary.samples(group)
            yield from samples[torch.randperm(len(samples), generator=generator).numpy()].tolist()

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process announces no epochs."""
        return {**self.__dict__, "_on_epoch": None}
