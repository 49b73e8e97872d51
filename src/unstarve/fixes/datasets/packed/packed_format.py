"""The format of a packed dataset, version 1. Everything is little-endian::

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

A sample is a tree: tuples, lists and dicts around *leaves* (see `PackedLeaf`). Samples that equal the first
one in everything but their values are stored in **columns**, all others as **records**.

A column holds one leaf of all such samples: row after row without gaps, starting at a multiple of 4096 bytes.
Mapped into memory it is one C-contiguous tensor. There are no columns if the first sample holds text or
bytes, whose length varies.

A record is one whole sample::

    record  u64 dims of every leaf, in order: the shape of a tensor or array, the length of text and bytes
            the bytes of every leaf, in order, each starting at a multiple of `leaf_alignment`

It starts at a multiple of `record_alignment`: 4096, the block size of storage, if samples are so large that
the gap does not matter, else 64. Direct reads, past the page cache, read a little more on either side.

The index is one JSON object::

    {"samples": 4000,
     "columns": {"schema": …, "rows": 3999, "leaves": [{"shape": [25000], "offset": 4096}]},   or null
     "records": {"schemas": […], "table": TABLE},                                              or null
     "checksums": TABLE,                                 u32 for each sample
     "names": {"ends": TABLE, "text": TABLE},            or null; u64 where each name ends, UTF-8
     "about": {…}}                                       notes of the packer about the source

    TABLE   {"offset": …, "bytes": …, "crc": …}          its CRC-32; it starts at a multiple of 64 bytes

A schema is JSON too: a container is an object and a leaf a list::

    {"tuple": [["tensor", "float32", 3], ["int"]]}
    {"dict": [["image", ["array", "|u1", 3]], ["name", ["str"]]]}

A leaf names its kind; a tensor, array or numpy scalar also its type, and the first two their number of
dimensions. Shapes are stored with each record, and once for all columns.

The table of records has one `RECORD` row for each, by ascending sample. A sample *i* without a record is
column row *i* minus the number of records before it. A sample's checksum, wherever it is stored, is the
CRC-32 of its dims and then of its leaves' bytes in order, without the gaps between them.

Reading executes nothing: no pickle, no code.
"""

from __future__ import annotations

import functools
import reprlib
import struct
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from unstarve.fixes.samples.dtypes import torch_type
from unstarve.fixes.samples.structure import Node, Structure, Tree

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
    """The last bytes of a file: where its index is. Any change of a sample changes the footer."""

    index_offset: int
    index_bytes: int
    index_crc: int

    def pack(self) -> bytes:
        """Return the bytes to write."""
        return FOOTER.pack(self.index_offset, self.index_bytes, self.index_crc, VERSION, 0, MAGIC)


def header() -> bytes:
    """Return the first bytes of a packed file."""
    return HEADER.pack(MAGIC, VERSION).ljust(HEADER_BYTES, b"\0")


def aligned(offset: int, alignment: int) -> int:
    """Round up to a multiple of the alignment."""
    return -(-offset // alignment) * alignment


def record_alignment(size_bytes: int) -> int:
    """Return the alignment of a record; the gap before it is at most a sixteenth of its size."""
    return BLOCK_BYTES if size_bytes >= _LARGE_RECORD_BYTES else 64


def leaf_alignment(size_bytes: int) -> int:
    """Return the alignment of a leaf inside its record."""
    return 64 if size_bytes >= _LARGE_LEAF_BYTES else 16


def _brief(value: Any) -> str:
    """Return the beginning of a value from a file, without formatting all of it: it may be huge."""
    return reprlib.repr(value)[:60]


def natural(value: Any) -> int:
    """Return a size or count from JSON. Raises ValueError if it is not one."""
    if type(value) is not int or not 0 <= value < 2**62:
        raise ValueError(f"{_brief(value)} is not a valid size")
    return value


_FIXED_SIZES = {"none": 0, "bool": 1, "int": 8, "float": 8, "complex": 16}
_VARYING = frozenset(("str", "bytes", "numpy.str", "numpy.bytes", "bigint"))
MAX_DEPTH = 64
_MAX_DIMENSIONS = 64


@dataclass(frozen=True, slots=True)
class PackedLeaf:
    """One value. `dtype` is torch's name of a tensor's type, numpy's of an array's, else empty.

    Kinds: tensor; array, scalar (numpy's); none, bool, int (64 bits), float, complex; and those whose length
    varies: str, bytes, numpy.str, numpy.bytes, bigint.
    """

    kind: str
    dtype: str = ""
    ndim: int = 0

    @property
    def has_fixed_size(self) -> bool:
        """Whether samples of the same shape have the same number of bytes here."""
        return self.kind not in _VARYING

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return _itemsize(self.kind, self.dtype)

    @property
    def torch_dtype(self) -> torch.dtype:
        """Type of a tensor."""
        return tensor_type(self.dtype)


Schema: TypeAlias = Structure[PackedLeaf]


def tensor_type(name: str) -> torch.dtype:
    """Return torch's type of this name. Raises ValueError if it cannot be stored or this torch lacks it."""
    found = torch_type(name)
    if found is None:
        raise ValueError(f"torch {torch.__version__} has no type {name!r} that can be packed")
    return found


@functools.cache
def _itemsize(kind: str, dtype: str) -> int:
    if kind == "tensor":
        return tensor_type(dtype).itemsize
    if kind in ("array", "scalar"):
        return np.dtype(dtype).itemsize
    return _FIXED_SIZES.get(kind, 1)


def to_json(schema: Schema) -> Any:
    """Return the schema as it is written into an index."""
    return _tree_to_json(schema.tree, schema.leaves)


def _tree_to_json(tree: Tree, leaves: tuple[PackedLeaf, ...]) -> Any:
    if isinstance(tree, int):
        leaf = leaves[tree]
        if leaf.kind in ("tensor", "array"):
            return [leaf.kind, leaf.dtype, leaf.ndim]
        return [leaf.kind, leaf.dtype] if leaf.kind == "scalar" else [leaf.kind]
    children = [_tree_to_json(child, leaves) for child in tree.children]
    if tree.keys is not None:
        return {"dict": [[key, child] for key, child in zip(tree.keys, children, strict=True)]}
    return {tree.kind.__name__: children}


def from_json(value: Any) -> Schema:
    """Read a schema that anyone may have written. Raises ValueError, which says what is wrong with it."""
    leaves: list[PackedLeaf] = []
    tree = _tree_from_json(value, 0, leaves)
    return Structure(tree, tuple(leaves))


def _tree_from_json(value: Any, depth: int, leaves: list[PackedLeaf]) -> Tree:
    if depth > MAX_DEPTH:
        raise ValueError("a sample is nested too deeply")
    match value:
        case {"dict": list(items), **rest} if not rest:
            return _dict_from_json(items, depth, leaves)
        case {"tuple": list(items), **rest} if not rest:
            return Node(tuple, None, tuple(_tree_from_json(item, depth + 1, leaves) for item in items))
        case {"list": list(items), **rest} if not rest:
            return Node(list, None, tuple(_tree_from_json(item, depth + 1, leaves) for item in items))
    leaves.append(_leaf_from_json(value))
    return len(leaves) - 1


def _leaf_from_json(value: Any) -> PackedLeaf:
    match value:
        case ["tensor" | "array" as kind, str(dtype), int(ndim)] if 0 <= ndim <= _MAX_DIMENSIONS:
            return _checked(PackedLeaf(kind, dtype, ndim))
        case ["scalar", str(dtype)]:
            return _checked(PackedLeaf("scalar", dtype))
        case [str(kind)] if kind in _FIXED_SIZES:
            return PackedLeaf(kind)
        case [str(kind)] if kind in _VARYING:
            return PackedLeaf(kind, ndim=1)
    raise ValueError(f"a schema cannot contain {_brief(value)}")


def _dict_from_json(items: list[Any], depth: int, leaves: list[PackedLeaf]) -> Node:
    keys: list[str | int] = []
    children: list[Tree] = []
    for item in items:
        match item:
            case [str() | int() as key, child] if type(key) in (str, int):
                keys.append(key)
                children.append(_tree_from_json(child, depth + 1, leaves))
            case _:
                raise ValueError(f"a dict in a schema cannot contain {_brief(item)}")
    if len(set(keys)) != len(keys):
        raise ValueError("a dict has the same key twice")
    return Node(dict, tuple(keys), tuple(children))


def _checked(leaf: PackedLeaf) -> PackedLeaf:
    if leaf.kind == "tensor":
        tensor_type(leaf.dtype)
        return leaf
    try:
        dtype = np.dtype(leaf.dtype)
    except (TypeError, ValueError, SyntaxError) as error:  # numpy parses a small language in such strings
        raise ValueError(f"numpy has no type {leaf.dtype[:60]!r}") from error
    if not storable(dtype) or dtype.str != leaf.dtype:
        raise ValueError(f"numpy's type {leaf.dtype[:60]!r} cannot be packed")
    return leaf


def storable(dtype: np.dtype[Any]) -> bool:
    """Whether a numpy type is numbers, dates or text whose bytes mean the same in another process."""
    return dtype.kind in "biufcmMSU" and dtype.itemsize > 0
