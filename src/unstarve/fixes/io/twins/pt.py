"""The layout of a file of torch.save: a zip archive with a pickle and a record per storage."""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from unstarve.fixes.io.twins.pickled import Global, Rebuilt, Storage, read_pickle
from unstarve.fixes.io.twins.source import (
    ITEMSIZES,
    Damaged,
    Layout,
    Source,
    Unsupported,
    quoted,
    tensor_bytes,
    tensor_text,
)

_WINDOW_BYTES = 4096
_MAX_LEAVES = 4096
_MAX_NESTING = 32
_MAX_NAME_BYTES = 0xFFFF
_STRUCTURE_BYTES = 256 << 10  # beside what is in proportion to the pickle
_STRUCTURE_BYTES_PER_BYTE = 8
_LARGE = 0xFFFFFFFF

_STORAGE_TYPES = {
    "torch FloatStorage": "float32", "torch DoubleStorage": "float64", "torch HalfStorage": "float16",
    "torch BFloat16Storage": "bfloat16", "torch LongStorage": "int64", "torch IntStorage": "int32",
    "torch ShortStorage": "int16", "torch CharStorage": "int8", "torch ByteStorage": "uint8",
    "torch BoolStorage": "bool", "torch ComplexFloatStorage": "complex64",
    "torch ComplexDoubleStorage": "complex128",
}  # fmt: skip


def pt_layout(source: Source) -> Layout:
    """Return structure and columns of a file that torch.save wrote."""
    archive = _Archive(source)
    if archive.has("constants.pkl"):
        raise Unsupported("it is a TorchScript archive")
    if archive.has("byteorder") and archive.content("byteorder", 16) != b"little":
        raise Unsupported("it was written in another byte order")
    data = archive.content("data.pkl", 4 << 20)
    writer = _Writer(archive, len(data))
    writer.write(read_pickle(data), 0)
    return "".join(writer.structure), writer.columns


class _Archive:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._records: dict[
            bytes, tuple[int, int, bool]
        ] = {}  # local header, size, neither packed nor encrypted
        self._prefix = b""
        tail_bytes = min(_WINDOW_BYTES, source.size_bytes)
        tail = source.bytes(source.size_bytes - tail_bytes, tail_bytes)
        if len(tail) < 22 or tail[-22:-18] != b"PK\5\6":
            raise Unsupported("it does not end like a zip archive")
        disks, _, count, size, start, _ = struct.unpack("<IHHIIH", tail[-18:])
        if disks or count == 0xFFFF or _LARGE in (size, start) or size > 16 << 20:
            raise Unsupported("it is a very large zip archive")
        directory = source.bytes(start, size)
        at = 0
        for _ in range(count):
            at += self._read_entry(directory, at)
        if len(self._records) != count:
            raise Unsupported("it has two records of one name")

    def _read_entry(self, directory: bytes, at: int) -> int:
        if len(directory) - at < 46 or directory[at : at + 4] != b"PK\1\2":
            raise Damaged("the directory of the zip archive is broken")
        flags, method = struct.unpack_from("<HH", directory, at + 8)
        packed, size, *lengths = struct.unpack_from("<IIHHH", directory, at + 20)
        (header,) = struct.unpack_from("<I", directory, at + 42)
        entry_bytes = 46 + sum(lengths)  # name, extra, comment
        if entry_bytes > len(directory) - at:
            raise Damaged("the directory of the zip archive is broken")
        if _LARGE in (packed, size, header):
            raise Unsupported("it is a very large zip archive")
        name = directory[at + 46 : at + 46 + lengths[0]]
        if not self._records:
            self._prefix = name.split(b"/")[0] + b"/"
        self._records[name] = header, size, method == 0 and not flags & 1 and packed == size
        return int(entry_bytes)

    def has(self, name: str) -> bool:
        return self._prefix + name.encode() in self._records

    def start_of(self, name: str) -> tuple[int, int]:
        """Return where the bytes of a record start, and how many there are; they lie inside the file."""
        # A name longer than any is not looked for: one string may name the storages of very many tensors.
        key = b"" if len(name) > _MAX_NAME_BYTES else self._prefix + name.encode()
        header, size, plain = self._records.get(key, (0, 0, False))
        if not plain:
            raise Unsupported("a record that it refers to is missing or compressed")
        local = self._source.bytes(header, 30)
        if local[:4] != b"PK\3\4" or local[8:10] != b"\0\0":
            raise Unsupported("a record does not start like one")
        start = header + 30 + sum(struct.unpack_from("<HH", local, 26))
        if start + size > self._source.size_bytes:
            raise Damaged("a record goes past the end of the file")
        return start, size

    def content(self, name: str, most_bytes: int) -> bytes:
        start, size = self.start_of(name)
        if size > most_bytes:
            raise Unsupported("a record is very long")
        return self._source.bytes(start, size)


class _Writer:
    """Writes down what the pickle describes."""

    def __init__(self, archive: _Archive, pickle_bytes: int) -> None:
        self._archive = archive
        self._written = 0
        self._bytes_left = _STRUCTURE_BYTES + _STRUCTURE_BYTES_PER_BYTE * pickle_bytes
        self.structure: list[str] = []
        self.columns: list[int] = []

    def write(self, value: Any, nesting: int) -> None:
        if nesting > _MAX_NESTING:
            raise Unsupported("its containers are nested very deeply")
        if type(value) is bool:
            self._leaf('"b"', int(value))
        elif type(value) is int:
            self._leaf('"i"', value)
        elif type(value) is float:
            self._leaf('"f"', struct.unpack("<q", struct.pack("<d", value))[0])
        elif isinstance(value, Rebuilt):
            self._tensor(value)
        elif isinstance(value, dict):
            self._count_one()
            self._put(f'["{"o" if isinstance(value, OrderedDict) else "d"}",[')
            for at, (key, item) in enumerate(value.items()):
                self._put(f"{',' if at else ''}[{quoted(key)},")
                self.write(item, nesting + 1)
                self._put("]")
            self._put("]]")
        elif type(value) in (tuple, list):
            self._count_one()
            self._put(f'["{"u" if type(value) is tuple else "l"}",[')
            for at, item in enumerate(value):
                self._put("," if at else "")
                self.write(item, nesting + 1)
            self._put("]]")
        else:
            raise Unsupported("it holds more than tensors, numbers and plain containers")

    def _put(self, text: str) -> None:
        """Add to the structure: what is in the pickle once may be there many times."""
        self._bytes_left -= len(text.encode())
        if self._bytes_left < 0:
            raise Unsupported("it repeats itself very often")
        self.structure.append(text)

    def _count_one(self) -> None:
        self._written += 1
        if self._written > _MAX_LEAVES:
            raise Unsupported("it holds very many tensors")

    def _leaf(self, text: str, column: int) -> None:
        self._count_one()
        self._put(text)
        self.columns.append(column)

    def _tensor(self, rebuilt: Rebuilt) -> None:
        storage, offset, shape, strides, requires_grad, hooks = rebuilt.arguments[:6]
        if not isinstance(storage, Storage) or len(storage.about) != 5:
            raise Unsupported("a tensor's storage is described in an unknown way")
        word, kind, key, location, elements = storage.about
        if word != "storage" or not isinstance(kind, Global) or not isinstance(key, str):
            raise Unsupported("a tensor's storage is described in an unknown way")
        if location != "cpu":
            raise Unsupported("a tensor lies on a device")
        if requires_grad is not False or not isinstance(hooks, OrderedDict) or hooks:
            raise Unsupported("a tensor requires gradients")
        dtype = _dtype_of(kind, rebuilt.arguments[6:])
        sizes = _sizes(shape)
        bytes_needed = tensor_bytes(dtype, sizes)
        if bytes_needed and not _contiguous(sizes, _sizes(strides)):
            raise Unsupported("a tensor is not contiguous")
        start, record_bytes = self._archive.start_of(f"data/{key}")
        itemsize = ITEMSIZES[dtype]
        unit = 1 if len(rebuilt.arguments) == 7 else itemsize
        first = _size(offset) * itemsize
        if (
            _size(elements) * unit != record_bytes
            or first > record_bytes
            or bytes_needed > record_bytes - first
        ):
            raise Damaged("a tensor goes past the end of its storage")
        self._leaf(tensor_text(dtype, sizes), start + first)


def _dtype_of(kind: Global, named: Sequence[Any]) -> str:
    if not named:
        if kind.name not in _STORAGE_TYPES:
            raise Unsupported("it holds a storage of a rare kind")
        return _STORAGE_TYPES[kind.name]
    if kind.name not in ("torch.storage UntypedStorage", "torch UntypedStorage"):
        raise Unsupported("it holds a storage of a rare kind")
    module, _, dtype = named[0].name.partition(" ") if isinstance(named[0], Global) else ("", "", "")
    if module != "torch" or dtype not in ITEMSIZES:
        raise Unsupported("it holds elements of a rare type")
    return str(dtype)


def _size(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise Unsupported("a tensor is described by something other than sizes")
    return value


def _sizes(values: Any) -> list[int]:
    if type(values) is not tuple or len(values) > 64:
        raise Unsupported("a tensor is described by something other than sizes")
    return [_size(value) for value in values]


def _contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    if len(shape) != len(strides):
        return False
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True
