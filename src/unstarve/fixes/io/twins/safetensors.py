"""The layout of a .safetensors file: a header of JSON, then the bytes of the tensors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from unstarve.fixes.io.twins.source import (
    Damaged,
    Layout,
    Source,
    is_text,
    quoted,
    tensor_bytes,
    tensor_text,
)

_HEAD_BYTES = 4096
_MAX_HEADER_BYTES = 100_000_000  # the format's own limit
_MAX_TENSORS = 65536
_MAX_NUMBERS = 64  # in a list: the dimensions of a tensor

_TYPES = {
    "F32": "float32", "F64": "float64", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool", "U16": "uint16", "U32": "uint32",
    "U64": "uint64", "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip


def safetensors_layout(source: Source) -> Layout:
    """Return structure and columns of a .safetensors file."""
    head = source.bytes(0, min(_HEAD_BYTES, source.size_bytes))
    if len(head) < 8:
        raise Damaged("it is too short to be a .safetensors file")
    length = int.from_bytes(head[:8], "little")
    if length > _MAX_HEADER_BYTES or length > source.size_bytes - 8:
        raise Damaged("its header is longer than the file, or than any may be")
    if 8 + length > len(head):
        head = source.bytes(0, 8 + length)
    data = 8 + length
    pairs, columns = [], []
    header = _Json(head[8:data])
    for name in header.members():
        if name == "__metadata__":
            for _ in header.members():
                header.string()
            continue
        dtype, shape, (first, end) = _entry(header)
        if first > end or end > source.size_bytes - data or tensor_bytes(dtype, shape) != end - first:
            raise Damaged("a tensor lies outside the file, or is not of the size that its shape says")
        pairs.append(f"[{quoted(name)},{tensor_text(dtype, shape)}]")
        columns.append(data + first)
    header.end()
    return f'["d",[{",".join(pairs)}]]', columns


def _entry(header: _Json) -> tuple[str, list[int], list[int]]:
    """Return type, shape, and where the tensor's bytes begin and end."""
    kind, shape, offsets = None, None, None
    for name in header.members():
        if name == "dtype":
            kind = header.string()
        elif name == "shape":
            shape = header.numbers()
        elif name == "data_offsets":
            offsets = header.numbers()
        else:
            raise _not_safetensors()
    if kind is None or shape is None or offsets is None or len(offsets) != 2:
        raise _not_safetensors()
    if kind not in _TYPES:
        raise Damaged(f"it holds elements of a type that is not known: {kind[:20]}")
    return _TYPES[kind], shape, offsets


def _not_safetensors() -> Damaged:
    return Damaged("its header is not what .safetensors has")


class _Json:
    """Just the JSON that the header may be made of: objects, strings, and lists of whole numbers.

    The standard parser would build whatever else is in it first, at twenty times its size.
    """

    _SPACE = re.compile(r"[ \n\r\t]*")
    _NUMBER = re.compile(r"[ \n\r\t]*([0-9]+)")
    _decode = json.JSONDecoder().raw_decode

    def __init__(self, text: bytes) -> None:
        try:
            self._text = text.decode()
        except ValueError as error:
            raise _not_safetensors() from error
        self._at = 0

    def members(self) -> Iterator[str]:
        """Yield the names of an object's members; whoever takes one must then take its value."""
        self._expect("{")
        if self._accept("}"):
            return
        seen: set[str] = set()
        while True:
            name = self.string()
            self._expect(":")
            if name in seen or len(seen) == _MAX_TENSORS:
                raise _not_safetensors()
            seen.add(name)
            yield name
            if not self._accept(","):
                break
        self._expect("}")

    def string(self) -> str:
        """Return the string that comes next."""
        self._expect('"')
        try:
            value, self._at = self._decode(self._text, self._at - 1)
        except ValueError as error:
            raise _not_safetensors() from error
        if not is_text(value):
            raise _not_safetensors()
        return str(value)

    def numbers(self) -> list[int]:
        """Return the list of whole numbers that comes next."""
        self._expect("[")
        found: list[int] = []
        if self._accept("]"):
            return found
        while True:
            if len(found) == _MAX_NUMBERS:
                raise _not_safetensors()
            found.append(self._number())
            if not self._accept(","):
                break
        self._expect("]")
        return found

    def end(self) -> None:
        """Raise Damaged where something follows."""
        self._skip_space()
        if self._at < len(self._text):
            raise _not_safetensors()

    def _number(self) -> int:
        digits = self._NUMBER.match(self._text, self._at)
        if digits is None:
            raise _not_safetensors()
        self._at = digits.end()
        if len(digits[1]) > 18:
            raise Damaged("a tensor is larger than any file")
        if len(digits[1]) > 1 and digits[1].startswith("0"):
            raise _not_safetensors()
        return int(digits[1])

    def _accept(self, token: str) -> bool:
        self._skip_space()
        if not self._text.startswith(token, self._at):
            return False
        self._at += 1
        return True

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise _not_safetensors()

    def _skip_space(self) -> None:
        found = self._SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at
