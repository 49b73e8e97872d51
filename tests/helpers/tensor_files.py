"""Files that tests read: those that torch.save, numpy and safetensors write, and damaged copies."""

from __future__ import annotations

import json
import random
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch


def write_safetensors(path: Path, tensors: dict[str, torch.Tensor], metadata: bool = False) -> None:
    names = {
        torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16",
        torch.int64: "I64", torch.uint8: "U8", torch.bool: "BOOL", torch.float8_e4m3fn: "F8_E4M3",
    }  # fmt: skip
    header: dict[str, Any] = {"__metadata__": {"made by": "a test"}} if metadata else {}
    data = b""
    for name, tensor in tensors.items():
        content = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        header[name] = {
            "dtype": names[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(content)],
        }
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


# What torch.save can be given and the finder understands.
PLAIN: dict[str, Any] = {
    "tensor": torch.arange(12.0).reshape(3, 4),
    "zero-dimensional": torch.tensor(3.5),
    "empty": torch.empty(0, 7),
    "view": torch.arange(20)[5:11],
    "row of a matrix": torch.arange(12).reshape(3, 4)[1],
    "one column": torch.arange(4.0).reshape(4, 1).T.T,
    "dict": {"x": torch.ones(2, 3), "y": torch.tensor([1, 2])},
    "ordered dict": OrderedDict(b=torch.zeros(2), a=torch.ones(1)),
    "tuple": (torch.ones(2), torch.zeros(3, dtype=torch.int64)),
    "list": [torch.ones(2), torch.zeros(3)],
    "nested": {"a": [torch.ones(1), (torch.zeros(2), {"b": torch.ones(3)})], "c": ()},
    "numbers": {"x": torch.ones(2), "i": -3, "big": 2**40, "f": 1.5, "b": True, "zero": 0},
    "odd keys": {'quo"te\\\n\x01': torch.ones(1), "ümlaut 🙂": torch.zeros(1)},
    "nothing but numbers": (1, 2.0, False),
    "many": {str(i): torch.full((2,), i) for i in range(50)},
}
for _dtype in (
    torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool, torch.complex64, torch.complex128, torch.uint16, torch.uint32, torch.uint64,
    torch.float8_e4m3fn, torch.float8_e5m2,
):  # fmt: skip
    PLAIN[str(_dtype)] = torch.arange(6).to(_dtype)

_shared = torch.arange(10.0)
PLAIN["shared storage"] = {"a": _shared[:4], "b": _shared[4:], "again": _shared}
_same = torch.ones(3)
PLAIN["one tensor twice"] = [_same, _same]

# What torch.save can be given and the finder leaves to torch.load.
LEFT_TO_TORCH: dict[str, Any] = {
    "transposed": torch.arange(6.0).reshape(2, 3).T,
    "every second": torch.arange(6.0)[::2],
    "expanded": torch.ones(1).expand(5),
    "gradients": torch.ones(2, requires_grad=True),
    "parameter": torch.nn.Parameter(torch.ones(2)),
    "conjugated": torch.ones(2, dtype=torch.complex64).conj(),
    "string": {"x": torch.ones(2), "name": "cat"},
    "none": (torch.ones(2), None),
    "integer keys": {1: torch.ones(2)},
    "huge integer": (2**70,),
    "sparse": torch.eye(3).to_sparse(),
    "size": torch.ones(2).shape,
}


def save_numbered(folder: Path, count: int = 10) -> list[str]:
    """Files whose tensors hold their number."""
    folder.mkdir(exist_ok=True)
    paths = [str(folder / f"{i:03}.pt") for i in range(count)]
    for i, path in enumerate(paths):
        torch.save(torch.full((4, 5), float(i)), path)
    return paths


def damaged_copies(original: bytes, rng: random.Random, count: int, interesting: int = 500) -> list[bytes]:
    """Copies with a few bytes changed, removed or repeated, mostly at both ends, where the headers are."""
    mutated = []
    for _ in range(count):
        data = bytearray(original)
        for _ in range(rng.randint(1, 3)):
            span = min(interesting, len(data))
            at = rng.randrange(span) if rng.random() < 0.5 else len(data) - 1 - rng.randrange(span)
            what = rng.random()
            if what < 0.6:
                data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            elif what < 0.8:
                del data[at : at + rng.randint(1, 40)]
            else:
                data[at:at] = data[at : at + rng.randint(1, 40)]
            if len(data) < 2:
                break
        mutated.append(bytes(data))
    return mutated
