"""The streams of a packed file being written → the one file.

The largest stream becomes the file and the others are copied behind it: each begins with room for a header.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np

from unstarve.fixes.datasets.packed.encode import Encoded
from unstarve.fixes.datasets.packed.format import (
    BLOCK_BYTES,
    HEADER_BYTES,
    RECORD,
    TABLE_ALIGNMENT,
    Footer,
    header,
)
from unstarve.fixes.datasets.packed.journal import (
    CHECKSUMS,
    MAX_COLUMNS,
    NAME_ENDS,
    NAMES,
    RECORD_TABLE,
    RECORDS,
    Columns,
    Journal,
    column_stream,
    is_column,
)
from unstarve.fixes.datasets.packed.packed_schema import to_json
from unstarve.fixes.datasets.packed.streams import Partial, Stream


def columns_for(first: Encoded) -> Columns | None:
    """The columns that hold samples like the first one; None where they are better kept as records."""
    leaves = first.schema.leaves
    if len(leaves) > MAX_COLUMNS or not all(leaf.has_fixed_size for leaf in leaves):
        return None
    return Columns(first.schema, first.dims)


def assemble(partial: Partial, journal: Journal) -> Stream:
    """Put the streams together; the stream that is the whole file now."""
    whole, starts = _data(partial)
    index = {
        "samples": journal.samples,
        "columns": _columns(journal, partial, starts),
        "records": _records(journal, partial, whole, starts),
        "checksums": _table(whole, _content(partial, CHECKSUMS)),
        "names": {
            "ends": _table(whole, _content(partial, NAME_ENDS)),
            "text": _table(whole, _content(partial, NAMES)),
        }
        if journal.named
        else None,
        "about": journal.about,
    }
    text = json.dumps(index, separators=(",", ":")).encode()
    whole.pad(TABLE_ALIGNMENT)
    footer = Footer(whole.size, len(text), zlib.crc32(text))
    whole.write(text)
    whole.write(footer.pack())
    return whole


def _data(partial: Partial) -> tuple[Stream, dict[str, int]]:
    """The whole with the bytes of all samples in it, and where those of each stream start."""
    names = sorted(name for name in partial.streams if name == RECORDS or is_column(name))
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


def _columns(journal: Journal, partial: Partial, starts: dict[str, int]) -> dict[str, Any] | None:
    columns = journal.columns
    if columns is None:
        return None
    record_count = partial.streams[RECORD_TABLE].size // RECORD.itemsize if RECORDS in starts else 0
    leaves = [
        {"shape": list(shape), "offset": starts.get(column_stream(number), HEADER_BYTES)}
        for number, shape in enumerate(columns.dims)
    ]
    return {"schema": to_json(columns.schema), "rows": journal.samples - record_count, "leaves": leaves}


def _records(
    journal: Journal, partial: Partial, whole: Stream, starts: dict[str, int]
) -> dict[str, Any] | None:
    if RECORDS not in starts:
        return None
    rows = np.frombuffer(_content(partial, RECORD_TABLE), RECORD).copy()
    rows["offset"] += starts[RECORDS] - HEADER_BYTES
    return {
        "schemas": [to_json(schema) for schema in journal.schemas],
        "table": _table(whole, rows.tobytes()),
    }


def _content(partial: Partial, name: str) -> bytes:
    return partial.stream(name).content()


def _table(whole: Stream, content: bytes) -> dict[str, int]:
    whole.pad(TABLE_ALIGNMENT)
    place = {"offset": whole.size, "bytes": len(content), "crc": zlib.crc32(content)}
    whole.write(content)
    return place
