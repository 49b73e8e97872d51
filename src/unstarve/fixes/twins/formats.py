"""What the compiled finder of layouts does, in Python: the same answers, one file after the other."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstarve.fixes.twins import reader
from unstarve.fixes.twins.pt import pt_layout
from unstarve.fixes.twins.source import (
    Damaged,
    Layout,
    Source,
    Unsupported,
    is_text,
    quoted,
    tensor_bytes,
    tensor_text,
)

_LAYOUT, _UNSUPPORTED, _DAMAGED, _NO_FILE = range(4)
_Answer = tuple[int, int, str, list[int], int, int]

_HEAD_BYTES = 4096


def find_layouts(
    names: bytes, starts: NDArray[np.int64], formats: NDArray[np.uint8], direct: bool, threads: int
) -> list[_Answer]:
    """For each file: what was found, errno, structure or reason, columns, size in bytes, mtime in ns."""
    if len(starts) != len(formats):
        raise ValueError("there must be one format for each path")
    if any(not 0 <= start < len(names) for start in starts.tolist()):
        raise ValueError("a question names a path outside the table of paths")
    return [
        _answer(names[start : names.index(b"\0", start)], layout_of(code), direct)
        for start, code in zip(starts.tolist(), formats.tolist(), strict=True)
    ]


def layout_of(code: int) -> Callable[[Source], Layout]:
    """Return the function that finds the layout in a file of this format."""
    known = (pt_layout, _npy_layout, _safetensors_layout)
    return known[code] if code < len(known) else _no_layout


def _no_layout(source: Source) -> Layout:
    raise Unsupported("it is of no known format")


def _answer(path: bytes, find: Callable[[Source], Layout], direct: bool) -> _Answer:
    try:
        try:
            fd = reader.open_file(path, direct)
        except reader.Refused:
            return _answer(path, find, False)
        try:
            return _look(fd, find, direct)
        finally:
            os.close(fd)
    except OSError as error:
        return _NO_FILE, error.errno or 0, "", [], -1, -1


def _look(fd: int, find: Callable[[Source], Layout], direct: bool) -> _Answer:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL, "not a file")

    def fill(offset: int, out: memoryview) -> bool:
        if direct:
            return reader.read_directly(fd, offset, out)[0] is None
        return reader.read_through_cache(fd, offset, out) is None

    try:
        text, columns = find(Source(status.st_size, fill))
        return _LAYOUT, 0, text, columns, status.st_size, status.st_mtime_ns
    except Unsupported as reason:
        return _UNSUPPORTED, 0, str(reason), [], status.st_size, status.st_mtime_ns
    except Damaged as reason:
        return _DAMAGED, 0, str(reason), [], status.st_size, status.st_mtime_ns


_NPY_TYPES = {
    "<f4": "float32", "<f8": "float64", "<f2": "float16", "<i8": "int64", "<i4": "int32", "<i2": "int16",
    "|i1": "int8", "|u1": "uint8", "|b1": "bool", "<c8": "complex64", "<u2": "uint16", "<u4": "uint32",
    "<u8": "uint64", "<c16": "complex128",
}  # fmt: skip

# {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
_NPY_HEADER = re.compile(
    r"[ \n]*\{[ \n]*'descr'[ \n]*:[ \n]*'([^']*)'[ \n]*,"
    r"[ \n]*'fortran_order'[ \n]*:[ \n]*(True|False)[ \n]*,"
    r"[ \n]*'shape'[ \n]*:[ \n]*\(((?:[ \n]*[0-9]+[ \n]*,)*(?:[ \n]*[0-9]+)?)[ \n]*\)[ \n]*,?[ \n]*\}[ \n]*"
)


def _npy_layout(source: Source) -> Layout:
    head = source.bytes(0, min(_HEAD_BYTES, source.size_bytes))
    if len(head) < 10 or not head.startswith(b"\x93NUMPY"):
        raise Damaged("it does not start like a .npy file")
    version = head[6]
    start = 12 if version >= 2 else 10
    if not 1 <= version <= 3 or len(head) < start:
        raise Unsupported("it is of an unknown version")
    length = int.from_bytes(head[8:start], "little")
    if length > 1 << 20:
        raise Unsupported("its header is very long")
    if start + length > len(head):
        head = source.bytes(0, start + length)
    header = _NPY_HEADER.fullmatch(head[start : start + length].decode("latin-1"))
    if header is None:
        raise Unsupported("its header is not written as numpy writes it")
    if (dtype := _NPY_TYPES.get(header[1])) is None:
        raise Unsupported("it holds elements that torch has no type for, or of another byte order")
    digits = re.findall("[0-9]+", header[3])
    if any(len(size) > 18 for size in digits):
        raise Damaged("a tensor is larger than any file")
    shape = [int(size) for size in digits]
    if header[2] == "True" and len(shape) > 1:
        raise Unsupported("its columns lie together, not its rows")
    if len(shape) > 64:
        raise Unsupported("it has very many dimensions")
    if tensor_bytes(dtype, shape) > source.size_bytes - (start + length):
        raise Damaged("it is shorter than its header says")
    return tensor_text(dtype, shape), [start + length]


_SAFETENSORS_TYPES = {
    "F32": "float32", "F64": "float64", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool", "U16": "uint16", "U32": "uint32",
    "U64": "uint64", "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip

_NOT_SAFETENSORS = "its header is not what .safetensors has"


def _safetensors_layout(source: Source) -> Layout:
    head = source.bytes(0, min(_HEAD_BYTES, source.size_bytes))
    if len(head) < 8:
        raise Damaged("it is too short to be a .safetensors file")
    length = int.from_bytes(head[:8], "little")
    if length > 100_000_000 or length > source.size_bytes - 8:
        raise Damaged("its header is longer than the file, or than any may be")
    if 8 + length > len(head):
        head = source.bytes(0, 8 + length)
    data = 8 + length
    pairs, columns = [], []
    for name, entry in _safetensors_header(head[8:data]):
        if name == "__metadata__":
            if not isinstance(entry, _Members) or not all(is_text(value) for _, value in entry):
                raise Damaged(_NOT_SAFETENSORS)
            continue
        dtype, shape, first, end = _safetensors_entry(entry)
        if first > end or end > source.size_bytes - data or tensor_bytes(dtype, shape) != end - first:
            raise Damaged("a tensor lies outside the file, or is not of the size that its shape says")
        pairs.append(f"[{quoted(name)},{tensor_text(dtype, shape)}]")
        columns.append(data + first)
    return f'["d",[{",".join(pairs)}]]', columns


class _Members(list[tuple[str, Any]]):
    """A JSON object with its members in order."""


def _safetensors_header(text: bytes) -> _Members:
    try:
        header = json.loads(text.decode(), object_pairs_hook=_Members)
    except (ValueError, RecursionError) as error:
        raise Damaged(_NOT_SAFETENSORS) from error
    if not isinstance(header, _Members):
        raise Damaged(_NOT_SAFETENSORS)
    for members in (header, *(value for _, value in header if isinstance(value, _Members))):
        if len({name for name, _ in members}) != len(members) or not all(
            is_text(name) for name, _ in members
        ):
            raise Damaged(_NOT_SAFETENSORS)
    return header


def _safetensors_entry(entry: Any) -> tuple[str, list[int], int, int]:
    members = dict(entry) if isinstance(entry, _Members) else {}
    if members.keys() != {"dtype", "shape", "data_offsets"} or not is_text(members["dtype"]):
        raise Damaged(_NOT_SAFETENSORS)
    shape, offsets = _whole_numbers(members["shape"]), _whole_numbers(members["data_offsets"])
    if len(offsets) != 2 or len(shape) > 64:
        raise Damaged(_NOT_SAFETENSORS)
    dtype = _SAFETENSORS_TYPES.get(members["dtype"])
    if dtype is None:
        raise Damaged(f"it holds elements of a type that is not known: {members['dtype'][:20]}")
    return dtype, shape, offsets[0], offsets[1]


def _whole_numbers(values: Any) -> list[int]:
    if not isinstance(values, list) or isinstance(values, _Members):
        raise Damaged(_NOT_SAFETENSORS)
    if not all(type(value) is int and value >= 0 for value in values):
        raise Damaged(_NOT_SAFETENSORS)
    if any(value >= 10**18 for value in values):
        raise Damaged("a tensor is larger than any file")
    return values
