"""Layout of a packed dataset, version 1. Everything is little-endian::

    file    header data* table* index footer
    header  4096 bytes:  8 s  magic b"UNSTPACK"
                         u16  version
                         zeros
    footer  u64  where the index starts
            u64  its length in bytes
            u32  its CRC-32
            u16  version
            u16  reserved, 0
            8 s  magic b"UNSTPACK"

A sample is a tree: tuples, lists and dicts around *leaves* (`schema.py` has the kinds). Samples that are like
the first one in everything but their values are kept in **columns**; all others are **records**.

A column holds one leaf of all such samples: row after row without a gap, from a multiple of 4096 bytes on.
Mapped into memory it is one C-contiguous tensor. There are no columns where the first sample holds text or
bytes, whose length varies.

A record is one whole sample::

    record  u64 dims of every leaf, in order: the shape of a tensor or array, the length of text and bytes
            the bytes of every leaf, in order, each from a multiple of `leaf_alignment` on

It starts at a multiple of `record_alignment`: 4096, a block of any storage, where samples are large enough
for the gap not to matter, else 64. What reads past the page cache reads a little more on either side.

The index is one JSON object::

    {"samples": 4000,
     "columns": {"schema": …, "rows": 3999, "leaves": [{"shape": [25000], "offset": 4096}]},   or null
     "records": {"schemas": […], "table": TABLE},                                              or null
     "checksums": TABLE,                                 u32 for each sample
     "names": {"ends": TABLE, "text": TABLE},            or null; u64 where each name ends, UTF-8
     "about": {…}}                                       what the packer said of the source

    TABLE   {"offset": …, "bytes": …, "crc": …}          its CRC-32; it starts at a multiple of 64 bytes

The table of records has one `RECORD` row for each, by ascending sample; sample *i* that has none is the
column row *i* minus the number of records before it. A sample's checksum, wherever it is stored, is the
CRC-32 of its dims and then of its leaves' bytes in order, without what lies between them.

Nothing here is executed on reading: no pickle, no code.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

MAGIC = b"UNSTPACK"
VERSION = 1

HEADER = struct.Struct("<8sH")
HEADER_BYTES = 4096
FOOTER = struct.Struct("<QQIHH8s")
BLOCK_BYTES = 4096
TABLE_ALIGNMENT = 64

RECORD = np.dtype([("sample", "<u8"), ("offset", "<u8"), ("size", "<u8"), ("schema", "<u4"), ("zero", "<u4")])
CHECKSUM = np.dtype("<u4")
NAME_END = np.dtype("<u8")

_LARGE_RECORD_BYTES = 64 << 10
_LARGE_LEAF_BYTES = 1 << 10


@dataclass(frozen=True, slots=True)
class Footer:
    """The last bytes of a file: where its index is. It changes with any sample, so it tells files apart."""

    index_offset: int
    index_bytes: int
    index_crc: int

    def pack(self) -> bytes:
        """As written."""
        return FOOTER.pack(self.index_offset, self.index_bytes, self.index_crc, VERSION, 0, MAGIC)


def header() -> bytes:
    """The first bytes of a packed file."""
    return HEADER.pack(MAGIC, VERSION).ljust(HEADER_BYTES, b"\0")


def aligned(offset: int, alignment: int) -> int:
    """The next multiple of the alignment."""
    return -(-offset // alignment) * alignment


def record_alignment(size_bytes: int) -> int:
    """What a record of this size starts at a multiple of: the gap before it is at most a sixteenth of it."""
    return BLOCK_BYTES if size_bytes >= _LARGE_RECORD_BYTES else 64


def leaf_alignment(size_bytes: int) -> int:
    """What a leaf of this size starts at a multiple of, inside its record."""
    return 64 if size_bytes >= _LARGE_LEAF_BYTES else 16


def natural(value: Any) -> int:
    """A size or a count as JSON holds it; ValueError where it is none."""
    if type(value) is not int or not 0 <= value < 2**62:
        raise ValueError(f"{str(value)[:30]} is no size")
    return value
