"""`.npy` files, as numpy writes them."""

from __future__ import annotations

import io
from pathlib import Path
from random import Random

import numpy as np

from fuzz.changes import NUMBERS, bytes_changed
from fuzz.targets._tensors import read

_TYPES = (
    "<f4", ">f4", "<f8", "|b1", "|u1", "<i8", "<c16", "<f16", "|O", "|S8", "<U4", "|V16", "<M8[s]", "f4", "",
    "<f4" * 99, "(2,2)<f4",
)  # fmt: skip


def seeds() -> list[bytes]:
    arrays = (
        np.arange(6, dtype="<f4").reshape(2, 3), np.zeros((0, 5)), np.array(3), np.arange(4, dtype=">i2"),
        np.asfortranarray(np.ones((3, 4), "u1")), np.ones((2, 2), ">f8"), np.ones(3, "<c8"),
    )  # fmt: skip
    return [_saved(array) for array in arrays]


def hostile() -> dict[str, bytes]:
    """Headers that promise more than there is."""
    shapes = {
        "0 × 10^18 × 10^18": "(0, 1000000000000000000, 1000000000000000000)",
        "more than any memory": "(1099511627776, 1099511627776)",
        "a size below zero": "(-1, 6)",
        "very many dimensions": "(" + "1, " * 5000 + ")",
        "no shape": "()" * 3,
        "a number without end": "(" + "9" * 9000 + ",)",
    }
    files = {name: _file("<f4", shape, bytes(24)) for name, shape in shapes.items()}
    deep = b"\x93NUMPY\1\0\x20\x4e" + b"(" * 10_000 + b")" * 10_000
    objects = io.BytesIO()
    np.save(objects, np.array([{}], dtype=object), allow_pickle=True)
    return files | {
        "deep tuples": deep,
        "pickled objects": objects.getvalue(),
        "much of nothing": _file("|V0", "(1000000000000,)", b""),
    }


def changed(data: bytes, random: Random) -> bytes:
    """Another header, of the right length."""
    start = 12 if data[6:7] >= b"\2" else 10
    length = int.from_bytes(data[8:start], "little")
    header = bytearray(data[start : start + length])
    match random.randrange(4):
        case 0:
            sizes = [str(random.choice(NUMBERS)) for _ in range(random.choice((0, 1, 2, 3, 33, 65)))]
            return _file(
                random.choice(_TYPES[:4]),
                f"({''.join(f'{size}, ' for size in sizes)})",
                data[start + length :],
            )
        case 1:
            return _file(random.choice(_TYPES), "(2, 3)", data[start + length :])
        case 2:
            major = random.choice((0, 1, 2, 3, 4, 255))
            return data[:6] + bytes([major]) + data[7:]
        case _:
            text = bytes_changed(bytes(header), b"'descr': Truefortran_order (,)", random)
            return data[:8] + len(text).to_bytes(start - 8, "little") + text + data[start + length :]


def run(data: bytes, folder: Path) -> None:
    read(folder / "input.npy", data)


def _file(dtype: str, shape: str, content: bytes) -> bytes:
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-len(header) % 64) + b"\n"
    return b"\x93NUMPY\2\0" + len(header).to_bytes(4, "little") + header + content


def _saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()
