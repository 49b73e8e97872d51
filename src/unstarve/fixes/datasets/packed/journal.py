"""What is in a packed file that is being written: noted at every checkpoint, checked when work is resumed.

Nothing in a journal is believed before it is known to fit: a damaged one must not reach other files.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from unstarve.fixes.datasets.packed.decode import size_of
from unstarve.fixes.datasets.packed.encode import Dims
from unstarve.fixes.datasets.packed.format import CHECKSUM, HEADER_BYTES, NAME_END, RECORD, natural
from unstarve.fixes.datasets.packed.packed_schema import Schema, from_json, to_json

RECORDS = "records"
RECORD_TABLE = "record-table"
CHECKSUMS = "checksums"
NAME_ENDS = "name-ends"
NAMES = "names"
MAX_COLUMNS = 64
_NAMED = frozenset((RECORDS, RECORD_TABLE, CHECKSUMS, NAME_ENDS, NAMES))
_COLUMN = re.compile(r"column-\d\d")


def column_stream(number: int) -> str:
    """Name of a column's stream."""
    return f"column-{number:02}"


def is_column(name: str) -> bool:
    """Whether a stream of this name holds a column."""
    return _COLUMN.fullmatch(name) is not None


def is_stream(name: str) -> bool:
    """Whether this is the name of a stream."""
    return name in _NAMED or is_column(name)


@dataclass(frozen=True, slots=True)
class Columns:
    """What the samples in columns have in common."""

    schema: Schema
    dims: Dims

    def row_bytes(self) -> list[int]:
        """Bytes of one row of each column."""
        leaves = self.schema.leaves
        return [size_of(leaf, shape) for leaf, shape in zip(leaves, self.dims, strict=True)]


@dataclass(frozen=True, slots=True)
class Journal:
    """What is in the streams; `sizes` says how many bytes of each count."""

    samples: int = 0
    columns: Columns | None = None
    schemas: tuple[Schema, ...] = ()
    named: bool | None = None
    about: dict[str, Any] = field(default_factory=dict)
    position: Any = None
    sizes: dict[str, int] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """As written."""
        columns = self.columns
        content = {
            "samples": self.samples,
            "about": self.about,
            "position": self.position,
            "named": self.named,
            "columns": None if columns is None else [to_json(columns.schema), columns.dims],
            "schemas": [to_json(schema) for schema in self.schemas],
            "sizes": self.sizes,
        }
        return json.dumps(content).encode()


def parse(text: bytes) -> Journal | None:
    """Read a journal; None where it makes no sense."""
    try:
        journal = _parsed(json.loads(text))
        _check_sizes(journal)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None
    return journal


def _parsed(content: Any) -> Journal:
    named, about, schemas = content["named"], content["about"], content["schemas"]
    if named not in (None, True, False) or not isinstance(about, dict) or not isinstance(schemas, list):
        raise ValueError("a field is of another type")
    return Journal(
        samples=natural(content["samples"]),
        columns=_columns(content["columns"]),
        schemas=tuple(from_json(schema) for schema in schemas),
        named=named,
        about=about,
        position=content["position"],
        sizes={name: natural(size) for name, size in content["sizes"].items()},
    )


def _columns(content: Any) -> Columns | None:
    if content is None:
        return None
    schema = from_json(content[0])
    dims = tuple(tuple(natural(size) for size in shape) for shape in content[1])
    leaves = schema.leaves
    shapes = zip(leaves, dims, strict=True)
    if len(leaves) > MAX_COLUMNS or not all(
        leaf.has_fixed_size and len(shape) == leaf.ndim for leaf, shape in shapes
    ):
        raise ValueError("the columns do not fit their schema")
    return Columns(schema, dims)


def _check_sizes(journal: Journal) -> None:
    """ValueError unless all streams are known and end behind the same sample."""
    sizes = dict(journal.sizes)
    records, rest = divmod(sizes.pop(RECORD_TABLE, 0), RECORD.itemsize)
    has_records = sizes.pop(RECORDS, 0) >= HEADER_BYTES
    rows = journal.samples - records
    sound = (
        rest == 0 and rows >= 0 and has_records == (records > 0) and (rows == 0) == (journal.columns is None)
    )
    sound &= sizes.pop(CHECKSUMS, 0) == journal.samples * CHECKSUM.itemsize
    sound &= sizes.pop(NAME_ENDS, 0) == (journal.samples * NAME_END.itemsize if journal.named else 0)
    sound &= bool(journal.named) or NAMES not in sizes
    sizes.pop(NAMES, None)
    for number, row_bytes in enumerate(journal.columns.row_bytes() if journal.columns is not None else ()):
        sound &= sizes.pop(column_stream(number), 0) == (HEADER_BYTES + rows * row_bytes if row_bytes else 0)
    if sizes or not sound:
        raise ValueError("the streams do not fit together")
