"""A packed file held open: its index, its tables and its bytes.

The index is checked before it is used. Whoever wrote the file, reading it must not crash, exhaust memory or
read outside the file.
"""

from __future__ import annotations

import functools
import json
import mmap
import os
import sys
import weakref
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstarve.errors import DataFileError
from unstarve.fixes.datasets.packed.packed_codec import Dims, size_of
from unstarve.fixes.datasets.packed.packed_format import (
    CHECKSUM,
    FOOTER,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    NAME_END,
    RECORD,
    VERSION,
    Footer,
    PackedLeaf,
    Schema,
    from_json,
    natural,
)
from unstarve.fixes.io.regular_files import open_regular

Memory = NDArray[np.uint8]

# Without it, the kernel refuses to map a file larger than memory. Python has the name from 3.12 on.
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


class PackedFile:
    """An open packed file. Raises DataFileError, which says what is wrong with it.

    Everything is read into our own memory except through `memory`: touching the map of a file that was
    truncated kills the process. The map is private: writes to it never reach the file.
    """

    def __init__(self, path: str) -> None:
        if sys.byteorder != "little":
            raise DataFileError(f"{path} cannot be read here: packed datasets need a little-endian machine")
        self.path = path
        self.fd = open_regular(path)
        weakref.finalize(self, os.close, self.fd).atexit = False
        self.index = read_index(self.fd, path)
        self.size_bytes = os.fstat(self.fd).st_size
        self.records: NDArray[Any] = np.empty(0, RECORD)
        if self.index.records is not None:
            self.records = self._table(self.index.records, RECORD)
            check_records(self.records, self.index, path)
        self.record_samples: NDArray[np.int64] = self.records["sample"].astype(np.int64)

    def memory(self, offset: int, size_bytes: int) -> Memory:
        """Return a part of the file's map, read when it is touched. A truncated file then raises SIGBUS."""
        return np.frombuffer(self._map[0], np.uint8, size_bytes, offset)

    @property
    def is_writable(self) -> bool:
        """Whether the map can be written to, privately."""
        return self._map[1]

    @functools.cached_property
    def _map(self) -> tuple[mmap.mmap, bool]:
        return _mapped(self.fd)

    def expect(self, offset: int, size_bytes: int) -> None:
        """Ask the kernel to read a part of the file into the page cache in one go."""
        if size_bytes and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self.fd, offset, size_bytes, os.POSIX_FADV_WILLNEED)

    @functools.cached_property
    def checksums(self) -> NDArray[np.uint32]:
        """The checksum of each sample."""
        return self._table(self.index.checksums, CHECKSUM)

    @functools.cached_property
    def direct_fd(self) -> int | None:
        """A descriptor for direct reads, past the page cache; None if the file system has none."""
        flag = getattr(os, "O_DIRECT", None)
        if flag is None:
            return None
        try:
            fd = open_regular(self.path, flag)
        except (OSError, DataFileError):
            return None
        if not os.path.sameopenfile(fd, self.fd):  # the file was replaced
            os.close(fd)
            return None
        weakref.finalize(self, os.close, fd).atexit = False
        return fd

    def name(self, sample: int) -> str | None:
        """Return the name a sample was packed with; None if names were not stored."""
        if self._name_ends is None:
            return None
        ends, text = self._name_ends
        start = int(ends[sample - 1]) if sample else 0
        try:
            return text[start : int(ends[sample])].tobytes().decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise DataFileError(f"{self.path} is damaged: its names are invalid; pack it again") from error

    @functools.cached_property
    def _name_ends(self) -> tuple[NDArray[np.uint64], Memory] | None:
        if self.index.name_ends is None or self.index.names is None:
            return None
        text: Memory = self._table(self.index.names, np.dtype(np.uint8))
        return self._table(self.index.name_ends, NAME_END), text

    def where(self, sample: int) -> str:
        """Describe a sample in an error: the file, its number and its name."""
        try:
            name = self.name(sample)
        except DataFileError:  # the names are damaged too
            name = None
        return f"{self.path}: sample {sample}" + (f" ({name})" if name is not None else "")

    def check_size(self) -> None:
        """Raise DataFileError if the file was truncated: touching the map would kill the process."""
        if os.fstat(self.fd).st_size < self.size_bytes:
            raise DataFileError(f"{self.path} was truncated since it was opened; is it being written?")

    def _table(self, table: TablePlace, dtype: np.dtype[Any]) -> NDArray[Any]:
        self.expect(table.offset, table.size_bytes)
        content = np.frombuffer(read_exactly(self.fd, table.offset, table.size_bytes, self.path), np.uint8)
        check_table(content, table, self.path)
        return content.view(dtype)


def _mapped(fd: int) -> tuple[mmap.mmap, bool]:
    """Return the file's map, and whether it can be written to."""
    flags, protection = mmap.MAP_PRIVATE | _NO_RESERVE, mmap.PROT_READ | mmap.PROT_WRITE
    try:
        whole = mmap.mmap(fd, 0, flags=flags, prot=protection)
    except OSError:  # memory overcommit is off
        return mmap.mmap(fd, 0, access=mmap.ACCESS_READ), False
    return whole, True


_MAX_INDEX_BYTES = 256 << 20
_ROWS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class TablePlace:
    """The place of a table in the file."""

    offset: int
    size_bytes: int
    crc: int


@dataclass(frozen=True, slots=True)
class PackedColumn:
    """One leaf of all samples in columns: row *i* starts at ``offset + i * row_bytes``."""

    leaf: PackedLeaf
    shape: tuple[int, ...]
    offset: int
    row_bytes: int


@dataclass(frozen=True, slots=True)
class Index:
    """The index of a packed file."""

    footer: Footer
    samples: int
    schema: Schema | None
    """Of the samples in columns; None if there are none."""
    columns: tuple[PackedColumn, ...]
    rows: int
    """Samples in columns."""
    schemas: tuple[Schema, ...]
    records: TablePlace | None
    checksums: TablePlace
    name_ends: TablePlace | None
    names: TablePlace | None
    about: dict[str, Any]

    @property
    def dims(self) -> Dims:
        """Shapes of the leaves in columns."""
        return tuple(column.shape for column in self.columns)


def read_index(fd: int, path: str) -> Index:
    """Read and check a file's index. Raises DataFileError, which says what is wrong."""
    footer, size_bytes = _read_footer(fd, path)
    text = read_exactly(fd, footer.index_offset, footer.index_bytes, path)
    if zlib.crc32(text) != footer.index_crc:
        raise DataFileError(f"{path} is damaged: the checksum of its index is wrong; pack it again")
    try:
        return _parsed_index(json.loads(text), footer, size_bytes)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise DataFileError(f"{path} is damaged: its index is invalid ({error}); pack it again") from error


def read_exactly(fd: int, offset: int, size_bytes: int, path: str) -> bytearray:
    """Read exactly this many bytes. Raises DataFileError if the file was truncated."""
    data = bytearray(size_bytes)
    view = memoryview(data)
    while view:
        got = os.preadv(fd, [view], offset)
        if got == 0:
            raise DataFileError(f"{path} was truncated since it was opened; is it being written?")
        view = view[got:]
        offset += got
    return data


def check_table(content: NDArray[np.uint8], table: TablePlace, path: str) -> None:
    """Raise DataFileError if the checksum of a table is wrong."""
    if zlib.crc32(content.data) != table.crc:
        raise DataFileError(f"{path} is damaged: the checksum of a table is wrong; pack it again")


def check_records(rows: NDArray[Any], index: Index, path: str) -> None:
    """Raise DataFileError unless every record refers to an existing sample, schema and bytes, in order."""
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        some = rows[max(start - 1, 0) : start + _ROWS_AT_ONCE]  # with the last row before, to check the order
        if not _are_valid(some, index):
            raise DataFileError(f"{path} is damaged: its table of records is invalid; pack it again")


def _are_valid(rows: NDArray[Any], index: Index) -> bool:
    samples, offsets = rows["sample"], rows["offset"]
    limit = np.uint64(index.footer.index_offset)
    room = limit - np.minimum(offsets, limit)
    return bool(
        (samples[1:] > samples[:-1]).all()
        and samples[-1] < index.samples
        and (rows["schema"] < len(index.schemas)).all()
        and (offsets >= HEADER_BYTES).all()
        and (rows["size"] <= room).all()
        and (room > 0).all()
        and (offsets[1:] >= offsets[:-1] + rows["size"][:-1]).all()
    )


def _read_footer(fd: int, path: str) -> tuple[Footer, int]:
    size_bytes = os.fstat(fd).st_size
    start = os.pread(fd, HEADER.size, 0)
    if len(start) < HEADER.size or start[: len(MAGIC)] != MAGIC:
        raise DataFileError(f"{path} is not a packed dataset: `unstarve pack SRC DST` makes one")
    version = HEADER.unpack(start)[1]
    if version != VERSION:
        raise DataFileError(
            f"{path} uses version {version} of the packed format, which this unstarve cannot read"
        )
    end = os.pread(fd, FOOTER.size, max(size_bytes - FOOTER.size, 0))
    offset, length, crc, end_version, _, magic = FOOTER.unpack(end.ljust(FOOTER.size, b"\0"))
    if magic != MAGIC or end_version != VERSION or offset + length + FOOTER.size != size_bytes:
        raise DataFileError(f"{path} is truncated or was changed: it does not end like a packed dataset")
    if length > _MAX_INDEX_BYTES or offset < HEADER_BYTES:
        raise DataFileError(f"{path} is damaged: its index is invalid; pack it again")
    return Footer(offset, length, crc), size_bytes


def _parsed_index(content: Any, footer: Footer, size_bytes: int) -> Index:
    samples = natural(content["samples"])
    checksums = _parsed_table(content["checksums"], size_bytes, samples * CHECKSUM.itemsize)
    schema: Schema | None = None
    columns: tuple[PackedColumn, ...] = ()
    schemas: tuple[Schema, ...] = ()
    records = None
    rows = 0
    if content["columns"] is not None:
        schema, columns, rows = _parsed_columns(content["columns"], footer.index_offset)
    if content["records"] is not None:
        schemas = tuple(from_json(schema) for schema in content["records"]["schemas"])
        records = _parsed_table(content["records"]["table"], size_bytes, (samples - rows) * RECORD.itemsize)
    elif rows != samples:
        raise ValueError("samples are missing")
    ends = names = None
    if content["names"] is not None:
        ends = _parsed_table(content["names"]["ends"], size_bytes, samples * NAME_END.itemsize)
        names = _parsed_table(content["names"]["text"], size_bytes)
    about = content["about"]
    if not isinstance(about, dict):
        raise ValueError("about is not an object")
    return Index(footer, samples, schema, columns, rows, schemas, records, checksums, ends, names, about)


def _parsed_columns(content: Any, limit: int) -> tuple[Schema, tuple[PackedColumn, ...], int]:
    schema = from_json(content["schema"])
    rows = natural(content["rows"])
    columns = []
    for leaf, place in zip(schema.leaves, content["leaves"], strict=True):
        shape = tuple(natural(size) for size in place["shape"])
        offset = natural(place["offset"])
        row_bytes = size_of(leaf, shape)
        if len(shape) != leaf.ndim or not leaf.has_fixed_size:
            raise ValueError("a column does not fit its schema")
        if offset < HEADER_BYTES or offset + rows * row_bytes > limit:
            raise ValueError("a column reaches past the end")
        columns.append(PackedColumn(leaf, shape, offset, row_bytes))
    return schema, tuple(columns), rows


def _parsed_table(content: Any, size_bytes: int, expected_bytes: int | None = None) -> TablePlace:
    table = TablePlace(natural(content["offset"]), natural(content["bytes"]), natural(content["crc"]))
    if table.offset + table.size_bytes > size_bytes:
        raise ValueError("a table reaches past the end")
    if expected_bytes is not None and table.size_bytes != expected_bytes:
        raise ValueError("a table is not of the right size")
    return table
