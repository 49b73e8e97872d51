"""What a packed file says about itself, checked: nothing in it is believed before it is known to fit.

Whoever wrote the file, reading it must not crash, run away with memory or read outside of it.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstarve.errors import DataFileError
from unstarve.fixes.datasets.packed.decode import size_of
from unstarve.fixes.datasets.packed.encode import Dims
from unstarve.fixes.datasets.packed.format import (
    CHECKSUM,
    FOOTER,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    NAME_END,
    RECORD,
    VERSION,
    Footer,
    natural,
)
from unstarve.fixes.datasets.packed.packed_schema import PackedLeaf, Schema, from_json

_MAX_INDEX_BYTES = 256 << 20
_ROWS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class Table:
    """Where a table lies in the file."""

    offset: int
    size_bytes: int
    crc: int


@dataclass(frozen=True, slots=True)
class Column:
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
    """Of the samples in columns; None where there are none."""
    columns: tuple[Column, ...]
    rows: int
    """Samples in columns."""
    schemas: tuple[Schema, ...]
    records: Table | None
    checksums: Table
    name_ends: Table | None
    names: Table | None
    about: dict[str, Any]

    @property
    def dims(self) -> Dims:
        """Shapes of the leaves in columns."""
        return tuple(column.shape for column in self.columns)


def read_index(fd: int, path: str) -> Index:
    """Read and check a file's index. DataFileError says what is wrong with the file."""
    footer, size_bytes = _read_footer(fd, path)
    text = read_exactly(fd, footer.index_offset, footer.index_bytes, path)
    if zlib.crc32(text) != footer.index_crc:
        raise DataFileError(f"{path} is damaged: the checksum of its index is wrong; pack it again")
    try:
        return _parsed(json.loads(text), footer, size_bytes)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise DataFileError(
            f"{path} is damaged: its index makes no sense ({error}); pack it again"
        ) from error


def read_exactly(fd: int, offset: int, size_bytes: int, path: str) -> bytearray:
    """Bytes of the file, all of them. DataFileError where it has become shorter."""
    data = bytearray(size_bytes)
    view = memoryview(data)
    while view:
        got = os.preadv(fd, [view], offset)
        if got == 0:
            raise DataFileError(f"{path} has become shorter since it was opened; is it being written?")
        view = view[got:]
        offset += got
    return data


def check_table(content: NDArray[np.uint8], table: Table, path: str) -> None:
    """DataFileError where the checksum of a table is wrong."""
    if zlib.crc32(content.data) != table.crc:
        raise DataFileError(f"{path} is damaged: the checksum of a table is wrong; pack it again")


def check_records(rows: NDArray[Any], index: Index, path: str) -> None:
    """DataFileError unless each record names a sample, a schema and bytes that exist, in order."""
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        some = rows[max(start - 1, 0) : start + _ROWS_AT_ONCE]  # with the last one before, for the order
        if not _make_sense(some, index):
            raise DataFileError(f"{path} is damaged: its table of records makes no sense; pack it again")


def _make_sense(rows: NDArray[Any], index: Index) -> bool:
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
            f"{path} is packed in version {version} of the format, which needs another unstarve"
        )
    end = os.pread(fd, FOOTER.size, max(size_bytes - FOOTER.size, 0))
    offset, length, crc, end_version, _, magic = FOOTER.unpack(end.ljust(FOOTER.size, b"\0"))
    if magic != MAGIC or end_version != VERSION or offset + length + FOOTER.size != size_bytes:
        raise DataFileError(f"{path} is truncated or was changed: its end is not that of a packed dataset")
    if length > _MAX_INDEX_BYTES or offset < HEADER_BYTES:
        raise DataFileError(f"{path} is damaged: its index makes no sense; pack it again")
    return Footer(offset, length, crc), size_bytes


def _parsed(content: Any, footer: Footer, size_bytes: int) -> Index:
    samples = natural(content["samples"])
    checksums = _table(content["checksums"], size_bytes, samples * CHECKSUM.itemsize)
    schema: Schema | None = None
    columns: tuple[Column, ...] = ()
    schemas: tuple[Schema, ...] = ()
    records = None
    rows = 0
    if content["columns"] is not None:
        schema, columns, rows = _parsed_columns(content["columns"], footer.index_offset)
    if content["records"] is not None:
        schemas = tuple(from_json(schema) for schema in content["records"]["schemas"])
        records = _table(content["records"]["table"], size_bytes, (samples - rows) * RECORD.itemsize)
    elif rows != samples:
        raise ValueError("samples are missing")
    ends = names = None
    if content["names"] is not None:
        ends = _table(content["names"]["ends"], size_bytes, samples * NAME_END.itemsize)
        names = _table(content["names"]["text"], size_bytes)
    about = content["about"]
    if not isinstance(about, dict):
        raise ValueError("about is no object")
    return Index(footer, samples, schema, columns, rows, schemas, records, checksums, ends, names, about)


def _parsed_columns(content: Any, limit: int) -> tuple[Schema, tuple[Column, ...], int]:
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
        columns.append(Column(leaf, shape, offset, row_bytes))
    return schema, tuple(columns), rows


def _table(content: Any, size_bytes: int, expected_bytes: int | None = None) -> Table:
    table = Table(natural(content["offset"]), natural(content["bytes"]), natural(content["crc"]))
    if table.offset + table.size_bytes > size_bytes:
        raise ValueError("a table reaches past the end")
    if expected_bytes is not None and table.size_bytes != expected_bytes:
        raise ValueError("a table is not of the right size")
    return table
