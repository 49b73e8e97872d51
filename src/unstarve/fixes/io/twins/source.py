"""What the finders of layouts in Python share: a file's bytes, and how a layout is written down."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Layout: TypeAlias = tuple[str, list[int]]

MAX_TENSOR_BYTES = 1 << 62

ITEMSIZES = {
    "float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint8": 1, "bool": 1, "complex64": 8, "complex128": 16, "uint16": 2, "uint32": 4, "uint64": 8,
    "complex32": 4, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
}  # fmt: skip


class Unsupported(Exception):
    """A good file perhaps, but not for us."""


class Damaged(Exception):
    """Cannot be a good file."""


class Source:
    """The bytes of one file; `fill(offset, memory)` reads them and says whether they were all there."""

    def __init__(self, size_bytes: int, fill: Callable[[int, memoryview], bool]) -> None:
        self.size_bytes = size_bytes
        self._fill = fill

    def bytes(self, offset: int, length: int) -> bytes:
        """Return the bytes from `offset`; raises Damaged where the file has no so many."""
        if offset + length > self.size_bytes:
            raise Damaged("something it refers to lies past its end")
        data = bytearray(length)
        if not self._fill(offset, memoryview(data)):
            raise Damaged("it became shorter while it was read, or cannot be read")
        return bytes(data)


def tensor_bytes(dtype: str, shape: Sequence[int]) -> int:
    """Return the bytes of a tensor; raises Damaged for sizes that no file can have."""
    if any(size < 0 for size in shape):
        raise Damaged("a tensor has a negative size")
    # Without the sizes of 0: neither numpy nor torch makes an empty tensor whose other sizes are too large.
    if math.prod(filter(None, shape)) * ITEMSIZES[dtype] > MAX_TENSOR_BYTES:
        raise Damaged("a tensor is larger than any file")
    return math.prod(shape) * ITEMSIZES[dtype]


def tensor_text(dtype: str, shape: Sequence[int]) -> str:
    """Return a tensor's part of the structure."""
    return f'["t","{dtype}",[{",".join(map(str, shape))}]]'


def quoted(text: str) -> str:
    """Return the text as JSON has it, with what is not ASCII as it is."""
    return json.dumps(text, ensure_ascii=False)


def is_text(value: Any) -> bool:
    """Return whether this is a string that can be written as UTF-8."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
