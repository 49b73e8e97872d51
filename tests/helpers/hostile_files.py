"""Small files that ask a reader for much memory or time, one function for each way of asking.

Each returns the bytes of a whole file, so that a test or a fuzzer's corpus can take all of them.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable

_START = b"\x80\x02"
_REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"


def archive(program: bytes) -> bytes:
    """A .pt file whose pickle is this program, with eight bytes in record 0."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, content in {"data.pkl": program, "data/0": bytes(8), "version": b"3\n"}.items():
            made.writestr(f"archive/{name}", content)
    return file.getvalue()


def text(value: str) -> bytes:
    """The opcode that pushes a string."""
    encoded = value.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def tensor(shape: tuple[int, ...] = (2,), key: str = "0") -> bytes:
    """The opcodes that push a tensor of the eight bytes in record 0, contiguous."""
    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text(key) + text("cpu") + b"K\x02tQ"
    strides = [1]
    for size in shape[:0:-1]:
        strides.insert(0, min(strides[0] * size, (1 << 63) - 1))
    sizes, steps = (
        b"(" + b"".join(b"\x8a\x08" + struct.pack("<q", size) for size in numbers) + b"t"
        for numbers in (shape, strides)
    )
    return _REBUILD + b"(" + storage + b"K\x00" + sizes + steps + b"\x89ccollections\nOrderedDict\n)RtR"


def persistent_ids(items: int = 30_000, uses: int = 20_000) -> bytes:
    """One long tuple that is the id of very many storages."""
    return archive(_START + b"](" + b"(" + b"N" * items + b"tq\x00" + b"h\x00Q" * uses + b"e.")


def rebuilt_tensors(uses: int = 30_000) -> bytes:
    """One tuple of arguments from which very many tensors are rebuilt."""
    return archive(_START + b"](" + _REBUILD + b"q\x00(NNNNNNtq\x01" + b"h\x00h\x01R" * uses + b"e.")


def dict_keys(length: int = 50_000, uses: int = 50_000) -> bytes:
    """One long key in very many dicts."""
    return archive(_START + b"](" + text("k" * length) + b"q\x00" + b"}h\x00K\x01s" * uses + b"e.")


def one_key_again(length: int = 1_000_000, uses: int = 100_000) -> bytes:
    """One long key that is set very often in one dict."""
    return archive(_START + b"}(" + text("k" * length) + b"q\x00K\x01" + b"h\x00K\x01" * uses + b"u.")


def repeated_key(length: int = 1_000_000, uses: int = 2_000) -> bytes:
    """A dict with one long key, very often in a list."""
    return archive(_START + b"](}" + text("k" * length) + b"K\x01sq\x00" + b"h\x00" * uses + b"e.")


def escaped_key(length: int = 1_000_000, uses: int = 2_000) -> bytes:
    """The same with a key that is six times as long in JSON."""
    return archive(_START + b"](}" + text("\x01" * length) + b"K\x01sq\x00" + b"h\x00" * uses + b"e.")


def repeated_storage(length: int = 1_000_000, uses: int = 4_000) -> bytes:
    """Very many tensors of one storage, whose name is longer than any."""
    return archive(_START + b"](" + tensor(key="k" * length) + b"q\x00" + b"h\x00" * uses + b"e.")


def laughs(width: int = 10, depth: int = 30) -> bytes:
    """Lists of lists of lists, each of which is the one before many times over."""
    levels = b"".join(b"](" + (b"h" + bytes([at])) * width + b"eq" + bytes([at + 1]) for at in range(depth))
    return archive(_START + b"](" + b"](K\x01eq\x00" + levels + b"e.")


def itself() -> bytes:
    """A list that holds itself twice."""
    return archive(_START + b"]q\x00(h\x00h\x00e.")


def marks(count: int = 1_000_000) -> bytes:
    """Nothing but marks."""
    return archive(_START + b"(" * count + b".")


def empty_lists(count: int = 1_000_000) -> bytes:
    """A list of very many empty lists."""
    return archive(_START + b"](" + b"]" * count + b"e.")


def memo(count: int = 500_000) -> bytes:
    """Very many places in the memo for one value."""
    return archive(_START + b"N" + b"".join(b"r" + struct.pack("<I", i) for i in range(count)) + b".")


def directory_entries(count: int = 60_000, name_bytes: int = 200) -> bytes:
    """A zip archive whose directory lists very many records, all of them the same bytes."""
    entries = b"".join(
        b"PK\1\2"
        + bytes(24)
        + struct.pack("<H", name_bytes)
        + bytes(16)
        + f"a/{i}".ljust(name_bytes).encode()
        for i in range(count)
    )
    end = b"PK\5\6" + bytes(4) + struct.pack("<HHIIH", count, count, len(entries), 0, 0)
    return entries + end


HOSTILE_PT: dict[str, Callable[[], bytes]] = {
    make.__name__.replace("_", " "): make
    for make in (
        persistent_ids, rebuilt_tensors, dict_keys, one_key_again, repeated_key, escaped_key,
        repeated_storage, laughs, itself, marks, empty_lists, memo, directory_entries,
    )
}  # fmt: skip


def safetensors(header: bytes, data: int = 16) -> bytes:
    """A .safetensors file with this header."""
    return struct.pack("<Q", len(header)) + header + bytes(data)


HOSTILE_SAFETENSORS: dict[str, Callable[[], bytes]] = {
    "nested lists": lambda: safetensors(b'{"a":' + b"[" * 4_000_000),
    "empty lists": lambda: safetensors(b'{"a":[' + b"[]," * 4_000_000 + b"[]]}"),
    "long shape": lambda: safetensors(
        b'{"a":{"dtype":"F32","shape":[' + b"1," * 8_000_000 + b'1],"data_offsets":[0,4]}}'
    ),
    "nested objects": lambda: safetensors(b'{"a":' * 1_000_000),
    "empty objects": lambda: safetensors(
        b'{"a":{' + b",".join(b'"%d":{}' % i for i in range(700_000)) + b"}}"
    ),
}


def npy(shape: str, descr: str = "<f4", data: int = 16) -> bytes:
    """A .npy file whose header gives this shape."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\2\0" + struct.pack("<I", len(header)) + header + bytes(data)


HOSTILE_NPY: dict[str, Callable[[], bytes]] = {
    "many dimensions": lambda: npy("(" + "1," * 500_000 + ")"),
    "many spaces": lambda: npy("(" + " " * 1_000_000 + "x)"),
    "many digits": lambda: npy("(" + "1" * 1_000_000 + "x)"),
    "spaces between numbers": lambda: npy("(" + "1 ," * 340_000 + "x)"),
}
