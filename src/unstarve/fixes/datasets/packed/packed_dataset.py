"""`PackedDataset`: a packed file as a dataset."""

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
from unstarve.fixes.datasets.packed.packed_access import (
    FileSource,
    Numbers,
    PackedAccess,
    SampleSource,
    column_rows,
)
from unstarve.fixes.datasets.packed.packed_chunks import ChunkReader, ChunkShuffleSampler, Itinerary, advise
from unstarve.fixes.datasets.packed.packed_contents import Contents
from unstarve.fixes.datasets.packed.packed_file import PackedFile
from unstarve.fixes.samples.built_batch import Batched

_REMEMBERED = 64
"""Chunks that a worker process remembers to have asked for."""


class PackedDataset(Dataset[Any]):
    """The samples of a packed file, exactly as they were packed, each in its own memory.

    `transform` is called with each sample. `read` says how bytes reach memory: "pread" reads through the page
    cache and "direct" past it, both many samples at once. "auto" chooses between them by whether the file
    fits into the page cache; a file of up to 512 MB that is already cached is read into memory as a whole.
    "view" uses the mapped file, whatever its size: that saves a copy, but if the file is truncated meanwhile,
    the process is killed (SIGBUS). `verify` compares checksums while reading.

    Whole batches are built at once (`__getitems__`, `read_batch`), also from several threads; with a
    transform, sample by sample. Copies in other processes open the file again. Raises DataFileError, which
    names the file and the sample, for a file that is damaged or was replaced.
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
        self._access = PackedAccess(self._file, read)
        self._contents = Contents(self._file, verify)
        self._ahead: ChunkReader | None = None
        self._chunk: int | None = None  # set if a sampler visits chunks
        self._advised: deque[int] = deque(maxlen=_REMEMBERED)

    @property
    def read(self) -> str:
        """How bytes reach memory, as passed."""
        return self._access.read

    @property
    def about(self) -> dict[str, Any]:
        """The packer's notes about the source."""
        return self._file.index.about

    @property
    def classes(self) -> list[str] | None:
        """The names of the labels, if the source had any."""
        classes: list[str] | None = self.about.get("classes")
        return classes

    @property
    def names(self) -> Sequence[str] | None:
        """The name each sample was packed with, such as its file; None if samples have no names."""
        return None if self._file.index.names is None else _Names(self._file)

    @property
    def releases_gil(self) -> bool:
        """Whether `read_batch` releases the GIL while it works: not with a transform."""
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
        """Return what `default_collate` would make of these samples."""
        if self.transform is not None or not self._contents.makes_batches:
            return default_collate(self._samples(indices))
        return self._contents.collated(self._parts(indices))

    def rows(self) -> Any | None:
        """Return all samples as one batch in memory; None if that is not possible or not worth it.

        That is: samples differ in shape, each needs a transform or a check, or the file is too large or not
        in the page cache (`read="auto"`). Writes to the batch stay in this process.
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
        """Return a sampler for slow storage: whole chunks are read ahead and shuffled within a window.

        `chunk` is a number of samples; by default about 4 MB. With direct reads (`read="direct"`, or "auto"
        and a file larger than memory), two windows of chunks are in memory.
        """
        chunk = self._contents.good_chunk() if chunk is None else chunk
        self._chunk = chunk
        self._access.warming = None  # the chunks are read ahead in the sampler's order instead
        return ChunkShuffleSampler(self, chunk, window, generator, on_epoch=self._begin_epoch)

    def _begin_epoch(self, itinerary: Itinerary) -> None:
        spare = self._ahead.close() if self._ahead is not None else []
        self._ahead = ChunkReader(self._contents, self._access, itinerary, spare)

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

    def _sources(self, samples: Numbers) -> list[tuple[int, Numbers, SampleSource, Callable[[], None]]]:
        """Cut a batch into parts with one source each, and what to call when a part is copied."""
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
        """In a worker process, which does not know the order: read a chunk as a whole when it is entered."""
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
            raise DataFileError(f"{path} was replaced since the dataset was created")

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
