"""`.safetensors` files: a JSON header and the tensors behind it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import torch

from fuzz.changes import bytes_changed, deep_json, json_changed, json_text
from fuzz.targets._tensors import read
from tensor_files import write_safetensors


def seeds() -> list[bytes]:
    files: list[dict[str, torch.Tensor]] = [
        {"x": torch.ones(2, 3), "y": torch.arange(4)},
        {"ü": torch.ones(0, 5), "b": torch.ones(3, dtype=torch.bfloat16)},
        {},
    ]
    made = []
    with tempfile.TemporaryDirectory() as folder:
        for number, tensors in enumerate(files):
            file = Path(folder, str(number))
            write_safetensors(file, tensors, metadata=number == 1)
            made.append(file.read_bytes())
    return made


def hostile() -> dict[str, bytes]:
    """Headers that promise more than there is."""
    one = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    shapes: dict[str, Any] = {
        "0 × 10^17 × 10^17": {"shape": [0, 10**17, 10**17], "data_offsets": [0, 0]},
        "0 × 10^18 × 10^18": {"shape": [0, 10**18, 10**18], "data_offsets": [0, 0]},
        "sizes whose product is 2^64": {"shape": [2**32, 2**32], "data_offsets": [0, 0]},
        "negative sizes": {"shape": [-1, -2]},
        "a number without end": {"shape": [10**4000]},
        "offsets in the wrong order": {"data_offsets": [8, 0]},
        "sizes that are no integers": {"shape": [2.0]},
        "very many dimensions": {"shape": [1] * 3000 + [2]},
    }
    files = {name: _file(json_text({"x": one | change}), bytes(8)) for name, change in shapes.items()}
    many = {f"{n}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for n in range(20_000)}
    return files | {
        "deep lists": _file(deep_json(40_000), b""),
        "deep objects": _file(b'{"x":' * 40_000 + b"}" * 40_000, b""),
        "very many tensors": _file(json_text(many), b""),
        "a header longer than the file": (2**63).to_bytes(8, "little") + b"{}",
    }


def changed(data: bytes, random: Random) -> bytes:
    """Another header, of the right length."""
    length = int.from_bytes(data[:8], "little")
    text, content = data[8 : 8 + length], data[8 + length :]
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        return bytes_changed(data, data, random)
    if random.random() < 0.8:
        return _file(json_text(json_changed(header, random)), content)
    return _file(bytes_changed(text, b'\\ud800\\"[]{}:,1e999', random), content)


def run(data: bytes, folder: Path) -> None:
    read(folder / "input.safetensors", data)


def _file(header: bytes, content: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + content
