"""A packed file as a dataset."""

from __future__ import annotations

import functools
import operator
import os
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, Subset, default_collate, get_worker_info

from unstarve.errors import DataFileError
from unstarve.fixes.datasets.packed.access import Access
from unstarve.fixes.datasets.packed.ahead import Ahead, advise
from unstarve.fixes.datasets.packed.contents import Contents
from unstarve.fixes.datasets.packed.file import PackedFile
from unstarve.fixes.datasets.packed.sampler import ChunkShuffleSampler, Itinerary
from unstarve.fixes.datasets.packed.source import FileSource, Numbers, Source, column_rows
from unstarve.fixes.samples.built_batch import Batched

_REMEMBERED = 64
"""Chunks a worker process remembers to have entered."""


class PackedDataset(Dataset[Any]):
    """The samples of a packed file, exactly as they were packed, each in memory of its own.

    `transform` is called with each sample. `read` says how bytes reach memory: "pread" reads through the page
    cache and "direct" past it, both many samples at once; "auto" chooses by whether the file would fit into
    the page cache, and reads a file of up to 512 MB that is there into memory, to cut batches from. "view"
    cuts them from the mapped file, whatever its size: that saves the copy, but a file that is cut short in
    the meantime ends the process (SIGBUS). `verify` compares checksums while reading.

    Whole batches are built at once (`__getitems__`, `read_batch`), by several threads at a time if wanted;
    with a transform, sample by sample. Copies in other processes open the file anew. Raises DataFileError,
    which names the file and the sample, for a file that is damaged or was replaced.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        transform: Callable[[Any], Any] | None = None,
        read: str = "auto",
        verify: bool = False,
    ) -> None:
        self.path = Path(path).absolute()
        self.transform = transform
        self.verify = verify
        self._file = PackedFile(str(self.path))
        self._access = Access(self._file, read)
        self._contents = Contents(self._file, verify)
        self._ahead: Ahead | None = None
        self._chunk: int | None = None  # set where a sampler visits chunks
        self._advised: deque[int] = deque(maxlen=_REMEMBERED)

    @property
    def read(self) -> str:
        """How bytes reach memory, as asked for."""
        return self._access.read

    @property
    def about(self) -> dict[str, Any]:
        """What the packer noted about the source."""
        return self._file.index.about

    @property
    def classes(self) -> list[str] | None:
        """Names of the labels, where the source had them."""
        classes: list[str] | None = self.about.get("classes")
        return classes

    @property
    def names(self) -> Sequence[str] | None:
        """What each sample was called when it was packed: its file, for example. None where nobody said."""
        return None if self._file.index.names is None else _Names(self._file)

    @property
    def releases_gil(self) -> bool:
        """Whether `read_batch` leaves Python to others while it works: not while a transform runs."""
        return self.transform is None

    def __len__(self) -> int:
        return self._file.index.samples

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Subset(self, range(len(self))[index])
        if self._ahead is not None:
            return self._samples([index])[0]
        found = self._contents.sample(self._checked_one(index), FileSource(self._access, self._way_now()))
        return found if self.transform is None else self.transform(found)

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Any]:
        if self.transform is not None or not self._contents.makes_batches:
            return self._samples(indices)
        parts = self._parts(indices)
        contents = self._contents
        return Batched(contents.collated(parts), len(indices), lambda at: contents.sample_of_batch(parts, at))

    def read_batch(self, indices: Sequence[int]) -> Any:
        """What `default_collate` would make of these samples."""
        if self.transform is not None or not self._contents.makes_batches:
            return default_collate(self._samples(indices))
        return self._contents.collated(self._parts(indices))

    def rows(self) -> Any | None:
        """All samples as one batch in memory; None where that is not the way.

        That is: samples differ in shape, something must be done to each, or the file is too large or not in
        the page cache (`read="auto"`). What is written into it stays in this process.
        """
        contents = self._contents
        if self.transform is not None or self.verify or not contents.makes_batches:
            return None
        self._file.check_size()
        if self._access.read == "view":
            columns = range(len(self._file.index.columns))
            mapped = self._file.is_writable
            return contents.whole([column_rows(self._file, number) for number in columns]) if mapped else None
        kept = self._access.keep_all()
        return None if kept is None else contents.whole(kept)

    def chunk_sampler(
        self, chunk: int | None = None, *, window: int = 8, generator: torch.Generator | None = None
    ) -> ChunkShuffleSampler:
        """An order for slow storage: chunks of neighbours, read whole and ahead, shuffled within a window.

        `chunk` is in samples; by default as many as make about 4 MB. Past the page cache (`read="direct"`, or
        "auto" and a file that memory cannot hold), two windows of chunks are in memory.
        """
        chunk = self._contents.good_chunk() if chunk is None else chunk
        self._chunk = chunk
        self._access.warming = None  # the sampler's order is known, and is as good
        return ChunkShuffleSampler(self, chunk, window, generator, on_epoch=self._begin_epoch)

    def _begin_epoch(self, itinerary: Itinerary) -> None:
        spare = self._ahead.close() if self._ahead is not None else []
        self._ahead = Ahead(self._contents, self._access, itinerary, spare)

    def _parts(self, indices: Sequence[int]) -> list[torch.Tensor]:
        samples = self._checked(indices)
        parts = self._contents.empty_parts(len(samples))
        for first, some, source, done in self._sources(samples):
            self._contents.batch(some, source, parts, first)
            done()
        return parts

    def _samples(self, indices: Sequence[int]) -> list[Any]:
        found: list[Any] = []
        for _, some, source, done in self._sources(self._checked(indices)):
            found += self._contents.samples(some, source)
            done()
        return found if self.transform is None else [self.transform(sample) for sample in found]

    def _sources(self, samples: Numbers) -> list[tuple[int, Numbers, Source, Callable[[], None]]]:
        """Cut a batch into parts that are read from one source each, and what to call when that is done."""
        way = self._way_now()
        now = FileSource(self._access, way)
        ahead = self._ahead
        if self._chunk is not None and way == "pread" and get_worker_info() is not None:
            self._advise_chunks(samples, self._chunk)
        if ahead is None or way == "view":
            return [(0, samples, now, _nothing)]
        return [
            (first, some, now, _nothing)
            if loaded is None
            else (first, some, loaded, functools.partial(ahead.done, loaded, len(some)))
            for first, some, loaded in ahead.split(samples, way)
        ]

    def _way_now(self) -> str:
        self._file.check_size()
        return self._access.way()

    def _advise_chunks(self, samples: Numbers, chunk: int) -> None:
        """In a worker process, which does not know the order: have a chunk read whole when it is entered."""
        for number in np.unique(samples // chunk).tolist():
            if number not in self._advised:
                self._advised.append(number)
                end = min((number + 1) * chunk, len(self))
                advise(self._contents, self._access, np.arange(number * chunk, end, dtype=np.int64))

    def _checked_one(self, index: Any) -> int:
        sample, count = operator.index(index), len(self)
        if not -count <= sample < count:
            raise IndexError(f"sample {sample} is out of range: {self.path} holds {count}")
        return sample if sample >= 0 else sample + count

    def _checked(self, indices: Sequence[int]) -> Numbers:
        count = len(self)
        samples = np.asarray(indices)
        if samples.dtype != np.int64:
            samples = np.array([operator.index(index) for index in indices], np.int64)
        bad = np.flatnonzero((samples < -count) | (samples >= count))
        if len(bad):
            raise IndexError(f"sample {samples[bad[0]]} is out of range: {self.path} holds {count}")
        return np.where(samples < 0, samples + count, samples)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "transform": self.transform,
            "read": self.read,
            "verify": self.verify,
            "footer": self._file.index.footer,
            "chunk": self._chunk,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        footer, path, chunk = (state.pop(name) for name in ("footer", "path", "chunk"))
        self.__init__(path, **state)  # type: ignore[misc] # a copy is opened as the original was
        self._chunk = chunk
        self._access.warming = self._access.warming if chunk is None else None
        if self._file.index.footer != footer:
            raise DataFileError(
                f"{path} is another file than the dataset was made from: it has been replaced"
            )

    def __repr__(self) -> str:
        return f"PackedDataset({os.fspath(self.path)!r}, {len(self)} samples)"


class _Names(Sequence[str]):
    def __init__(self, file: PackedFile) -> None:
        self._file = file

    def __len__(self) -> int:
        return self._file.index.samples

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self[i] for i in range(len(self))[at]]
        return self._file.name(range(len(self))[at])


def _nothing() -> None:
    pass
