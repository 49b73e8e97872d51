"""The streams of a packed file being written → the one file.

The largest stream becomes the file and the others are copied behind it: each begins with room for a header.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from unstarve.fixes.packed.decode import size_of
from unstarve.fixes.packed.encode import Dims, Encoded
from unstarve.fixes.packed.format import BLOCK_BYTES, HEADER_BYTES, RECORD, TABLE_ALIGNMENT, Footer, header
from unstarve.fixes.packed.schema import Tree, leaves_of, to_json
from unstarve.fixes.packed.streams import Partial, Stream

RECORDS = "records"
RECORD_TABLE = "record-table"
CHECKSUMS = "checksums"
NAME_ENDS = "name-ends"
NAMES = "names"
_COLUMN = "column-"
_MAX_COLUMNS = 64


@dataclass(frozen=True, slots=True)
class Columns:
    """What the samples in columns have in common."""

    tree: Tree
    dims: Dims

    def row_bytes(self) -> list[int]:
        """Bytes of one row of each column."""
        leaves = leaves_of(self.tree)
        return [size_of(leaf, shape) for leaf, shape in zip(leaves, self.dims, strict=True)]


@dataclass(frozen=True, slots=True)
class Contents:
    """What is in the streams."""

    samples: int
    columns: Columns | None
    schemas: list[Tree]
    named: bool
    about: dict[str, Any]


def columns_for(first: Encoded) -> Columns | None:
    """The columns that hold samples like the first one; None where they are better kept as records."""
    leaves = list(leaves_of(first.tree))
    if len(leaves) > _MAX_COLUMNS or not all(leaf.has_fixed_size for leaf in leaves):
        return None
    return Columns(first.tree, first.dims)


def column_stream(number: int) -> str:
    """Name of a column's stream."""
    return f"{_COLUMN}{number:02}"


def assemble(partial: Partial, contents: Contents) -> Stream:
    """Put the streams together; the stream that is the whole file now."""
    whole, starts = _data(partial)
    index = {
        "samples": contents.samples,
        "columns": _columns(contents, partial, starts),
        "records": _records(contents, partial, whole, starts),
        "checksums": _table(whole, _content(partial, CHECKSUMS)),
        "names": {
            "ends": _table(whole, _content(partial, NAME_ENDS)),
            "text": _table(whole, _content(partial, NAMES)),
        }
        if contents.named
        else None,
        "about": contents.about,
    }
    text = json.dumps(index, separators=(",", ":")).encode()
    whole.pad(TABLE_ALIGNMENT)
    footer = Footer(whole.size, len(text), zlib.crc32(text))
    whole.write(text)
    whole.write(footer.pack())
    return whole


def _data(partial: Partial) -> tuple[Stream, dict[str, int]]:
    """The whole with the bytes of all samples in it, and where those of each stream start."""
    names = sorted(name for name in partial.streams if name == RECORDS or name.startswith(_COLUMN))
    if not names:
        return partial.stream(RECORDS, header()), {}
    base = max(names, key=lambda name: partial.streams[name].size)
    whole = partial.streams[base]
    starts = {base: HEADER_BYTES}
    for name in names:
        if name != base:
            whole.pad(BLOCK_BYTES)
            starts[name] = whole.size
            whole.append_file(partial.streams[name], HEADER_BYTES)
    return whole, starts


def _columns(contents: Contents, partial: Partial, starts: dict[str, int]) -> dict[str, Any] | None:
    columns = contents.columns
    if columns is None:
        return None
    record_count = partial.streams[RECORD_TABLE].size // RECORD.itemsize if RECORDS in starts else 0
    leaves = [
        {"shape": list(shape), "offset": starts.get(column_stream(number), HEADER_BYTES)}
        for number, shape in enumerate(columns.dims)
    ]
    return {"schema": to_json(columns.tree), "rows": contents.samples - record_count, "leaves": leaves}


def _records(
    contents: Contents, partial: Partial, whole: Stream, starts: dict[str, int]
) -> dict[str, Any] | None:
    if RECORDS not in starts:
        return None
    rows = np.frombuffer(_content(partial, RECORD_TABLE), RECORD).copy()
    rows["offset"] += starts[RECORDS] - HEADER_BYTES
    return {
        "schemas": [to_json(tree) for tree in contents.schemas],
        "table": _table(whole, rows.tobytes()),
    }


def _content(partial: Partial, name: str) -> bytes:
    stream = partial.stream(name)
    stream.flush()
    return stream.path.read_bytes()


def _table(whole: Stream, content: bytes) -> dict[str, int]:
    whole.pad(TABLE_ALIGNMENT)
    place = {"offset": whole.size, "bytes": len(content), "crc": zlib.crc32(content)}
    whole.write(content)
    return place
