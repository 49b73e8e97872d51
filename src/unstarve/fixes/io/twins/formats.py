"""What the compiled finder of layouts does, in Python: the same answers, one file after the other."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unstarve.fixes.io.twins import reader
from unstarve.fixes.io.twins.pt import pt_layout
from unstarve.fixes.io.twins.safetensors import safetensors_layout
from unstarve.fixes.io.twins.source import (
    Damaged,
    Layout,
    Source,
    Unsupported,
    tensor_bytes,
    tensor_text,
)

_LAYOUT, _UNSUPPORTED, _DAMAGED, _NO_FILE = range(4)
_Answer = tuple[int, int, str, list[int], int, int]

_HEAD_BYTES = 4096
_MAX_HEADER_BYTES = 64 << 10  # numpy itself takes no more than 10,000


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
    known = (pt_layout, _npy_layout, safetensors_layout)
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
    if length > _MAX_HEADER_BYTES:
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
