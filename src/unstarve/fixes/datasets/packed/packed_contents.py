"""Samples and batches from a packed file, and the check of all its checksums."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unstarve.errors import DataFileError
from unstarve.fixes.datasets.packed.packed_access import FileSource, Numbers, PackedAccess, SampleSource
from unstarve.fixes.datasets.packed.packed_codec import (
    checksum,
    dims_bytes,
    record_checksum,
    sample_of,
    value_of,
)
from unstarve.fixes.datasets.packed.packed_file import Memory, PackedFile
from unstarve.fixes.datasets.packed.packed_format import PackedLeaf, Schema
from unstarve.fixes.memory.buffers import empty_batch

_CHUNK_BYTES = 4 << 20
_NUMBERS = {"bool": torch.bool, "int": torch.int64, "float": torch.float64}


class Contents:
    """Builds samples and batches. With `verify`, checks the checksum of everything it reads."""

    def __init__(self, file: PackedFile, verify: bool) -> None:
        self.file = file
        self.index = file.index
        self._verify = verify
        types = [collated_type(column.leaf) for column in self.index.columns]
        self._types = [dtype for dtype in types if dtype is not None]
        self.makes_batches: bool = (
            self.index.schema is not None and self.index.records is None and None not in types
        )
        """Whether every batch can be built directly, as `default_collate` would build it."""
        self._head = dims_bytes(self.index.dims)

    def batch(
        self, samples: Numbers, source: SampleSource, parts: list[torch.Tensor], first: int = 0
    ) -> None:
        """Fill rows `first` … of the batch tensors in `parts` with samples. Needs `makes_batches`."""
        some = slice(first, first + len(samples))
        rows = [
            as_bytes(part[some], column.row_bytes)
            for part, column in zip(parts, self.index.columns, strict=True)
        ]
        for number, out in enumerate(rows):
            if out.size:
                source.rows(number, samples, out)
        if self._verify:
            for at, sample in enumerate(samples.tolist()):
                self._check(sample, checksum(self._head, [out[at] for out in rows]))

    def empty_parts(self, count: int) -> list[torch.Tensor]:
        """Return memory for a batch: one tensor for each leaf."""
        return [
            empty_batch((count, *column.shape), dtype)
            for column, dtype in zip(self.index.columns, self._types, strict=True)
        ]

    def collated(self, parts: list[torch.Tensor]) -> Any:
        """Return batch tensors in the containers that `default_collate` makes."""
        assert self.index.schema is not None
        return self.index.schema.batch(parts)

    def sample_of_batch(self, parts: list[torch.Tensor], at: int) -> Any:
        """Return the sample at a position of a batch; its tensors and arrays are views of the batch."""
        assert self.index.schema is not None
        columns = self.index.columns
        values = [_from_batch(column.leaf, part[at]) for column, part in zip(columns, parts, strict=True)]
        return self.index.schema.sample(values)

    def sample(self, sample: int, source: FileSource) -> Any:
        """Return one sample, in its own memory."""
        if self.index.records is not None:
            return self.samples(np.array([sample]), source)[0]
        return self._sample_in_row(
            sample, [source.row(number, sample) for number in range(len(self.index.columns))]
        )

    def samples(self, samples: Numbers, source: SampleSource) -> list[Any]:
        """Return samples one by one, each in its own memory."""
        numbers, is_record = self.place(samples)
        found: list[Any] = [None] * len(samples)
        for at, leaves in self._leaves_in_rows(numbers, ~is_record, source):
            found[at] = self._sample_in_row(int(samples[at]), leaves)
        for at, number, memory in self._records(numbers, is_record, source):
            found[at] = self._sample_in_record(int(samples[at]), number, memory)
        return found

    def place(self, samples: Numbers) -> tuple[Numbers, NDArray[np.bool_]]:
        """Return the row or record number of each sample, and whether it is a record."""
        if self.index.records is None:
            return samples, np.zeros(len(samples), np.bool_)
        if self.index.rows == 0:
            return samples, np.ones(len(samples), np.bool_)
        listed = self.file.record_samples
        before = np.searchsorted(listed, samples)
        is_record = listed[np.minimum(before, len(listed) - 1)] == samples
        return np.where(is_record, before, samples - before), is_record

    def good_chunk(self) -> int:
        """Return how many samples make about 4 MB: long enough for a disk, short enough to mix several."""
        return max(1, _CHUNK_BYTES * self.index.samples // self.index.footer.index_offset)

    def whole(self, columns: list[Memory]) -> Any:
        """Return all samples as one batch over the memory of the columns. Needs `makes_batches`."""
        parts = []
        for column, dtype, rows in zip(self.index.columns, self._types, columns, strict=True):
            shape = (self.index.rows, *column.shape)
            memory = rows.reshape(-1)
            parts.append(
                torch.from_numpy(memory).view(dtype).view(shape)
                if memory.size
                else torch.empty(shape, dtype=dtype)
            )
        return self.collated(parts)

    def checksums(self, samples: Numbers, source: SampleSource) -> list[int | None]:
        """Return the checksum of each sample's bytes in the file; None if they are not a valid sample."""
        numbers, is_record = self.place(samples)
        found: list[int | None] = [None] * len(samples)
        for at, leaves in self._leaves_in_rows(numbers, ~is_record, source):
            found[at] = checksum(self._head, leaves)
        for at, number, memory in self._records(numbers, is_record, source):
            with contextlib.suppress(ValueError):
                found[at] = record_checksum(self._schema_of(number), memory)
        return found

    def _leaves_in_rows(
        self, numbers: Numbers, wanted: NDArray[np.bool_], source: SampleSource
    ) -> Iterator[tuple[int, list[Memory]]]:
        """Yield position and leaf bytes of each sample that is a row."""
        rows = numbers[wanted]
        if not len(rows):
            return
        memories = [np.empty((len(rows), column.row_bytes), np.uint8) for column in self.index.columns]
        for number, memory in enumerate(memories):
            if memory.size:
                source.rows(number, rows, memory)
        for row, at in enumerate(np.flatnonzero(wanted).tolist()):
            yield at, [memory[row] for memory in memories]

    def _records(
        self, numbers: Numbers, wanted: NDArray[np.bool_], source: SampleSource
    ) -> Iterator[tuple[int, int, Memory]]:
        """Yield position, record number and bytes of each sample that is a record."""
        records = numbers[wanted]
        if len(records):
            yield from zip(
                np.flatnonzero(wanted).tolist(), records.tolist(), source.records(records), strict=True
            )

    def _sample_in_row(self, sample: int, leaves: list[Memory]) -> Any:
        assert self.index.schema is not None
        if self._verify:
            self._check(sample, checksum(self._head, leaves))
        values = [
            value_of(column.leaf, column.shape, leaf)
            for column, leaf in zip(self.index.columns, leaves, strict=True)
        ]
        return self.index.schema.sample(values)

    def _sample_in_record(self, sample: int, number: int, memory: Memory) -> Any:
        schema = self._schema_of(number)
        try:
            if self._verify:
                self._check(sample, record_checksum(schema, memory))
            return sample_of(schema, memory)
        except (ValueError, RuntimeError, OverflowError) as error:
            raise DataFileError(f"{self.file.where(sample)} is damaged: {error}; pack it again") from error

    def _schema_of(self, record: int) -> Schema:
        return self.index.schemas[int(self.file.records[record]["schema"])]

    def _check(self, sample: int, found: int) -> None:
        if found != int(self.file.checksums[sample]):
            raise DataFileError(f"{self.file.where(sample)} is damaged: its checksum is wrong; pack it again")


def collated_type(leaf: PackedLeaf) -> torch.dtype | None:
    """Return the tensor type that `default_collate` makes of such leaves; None if it would refuse them."""
    if leaf.kind == "tensor":
        return leaf.torch_dtype
    if leaf.kind in ("array", "scalar"):
        try:
            return torch.from_numpy(np.empty(0, leaf.dtype)).dtype
        except (TypeError, ValueError):  # text, dates, foreign byte orders
            return None
    return _NUMBERS.get(leaf.kind)


def as_bytes(batch: torch.Tensor, row_bytes: int) -> Memory:
    """Return a batch's memory as rows of bytes."""
    if batch.numel() == 0:
        return np.empty((len(batch), row_bytes), np.uint8)
    return batch.view(-1).view(torch.uint8).numpy().reshape(len(batch), row_bytes)


def _from_batch(leaf: PackedLeaf, value: torch.Tensor) -> Any:
    if leaf.kind == "tensor":
        return value
    if leaf.kind == "array":
        return value.numpy()
    return value.numpy()[()] if leaf.kind == "scalar" else value.item()


_BYTES_AT_ONCE = 16 << 20
_MAX_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class DamagedSample:
    """A sample whose bytes have changed since it was packed."""

    sample: int
    name: str | None


@dataclass(frozen=True)
class Verified:
    """The result of comparing all checksums."""

    samples: int
    size_bytes: int
    damaged: tuple[DamagedSample, ...]


def verify(path: Path, advance: Callable[[int, int], None] = lambda done, total: None) -> Verified:
    """Compare all checksums. Raises DataFileError for a file without a valid index.

    `advance` is called with the number of samples compared so far and the total.
    """
    file = PackedFile(os.fspath(path))
    contents = Contents(file, verify=False)
    access = PackedAccess(file, "auto")
    total = file.index.samples
    mean_bytes = max(file.index.footer.index_offset // max(total, 1), 1)
    step = max(1, min(_BYTES_AT_ONCE // mean_bytes, _MAX_AT_ONCE))
    damaged: list[DamagedSample] = []
    for start in range(0, total, step):
        samples = np.arange(start, min(start + step, total), dtype=np.int64)
        file.check_size()
        found = contents.checksums(samples, FileSource(access, access.way()))
        for sample, crc in zip(samples.tolist(), found, strict=True):
            if crc != int(file.checksums[sample]):
                damaged.append(DamagedSample(sample, _name_of(file, sample)))
        advance(start + len(samples), total)
    return Verified(total, file.size_bytes, tuple(damaged))


def _name_of(file: PackedFile, sample: int) -> str | None:
    try:
        return file.name(sample)
    except DataFileError:  # the names are damaged too
        return None
