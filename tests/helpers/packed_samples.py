"""Samples of every kind that can be packed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

TORCH_TYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.float16,
    torch.bfloat16, torch.float8_e4m3fn, torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip
NUMPY_TYPES = [
    "?",
    "u1",
    "i2",
    "i8",
    "u8",
    "f2",
    "f4",
    "f8",
    "c8",
    "c16",
    ">f4",
    "M8[s]",
    "m8[ms]",
    "S3",
    "U5",
]

ONE_OF_EACH: dict[str, Any] = {
    "none": None, "true": True, "int": -7, "big int": 1 << 80, "negative big int": -(1 << 63) - 1,
    "smallest int": -(1 << 63), "float": 0.1, "nan": float("nan"), "complex": 1 - 2j, "text": "grün \ud800 ✓",
    "empty text": "", "bytes": b"\0\xff", "no bytes": b"", "np.float32": np.float32(2.5),
    "np.bool": np.bool_(True),
    "np.int8": np.int8(-1), "np.str": np.str_("abc"), "np.bytes": np.bytes_(b"abc"),
    "np.date": np.datetime64("2026-01-31T12:00"), "0-d array": np.array(3, np.int16),
    "empty array": np.empty((0, 4), np.float32), "0-d tensor": torch.tensor(2.5),
    "empty tensor": torch.empty(3, 0),
    "empty tuple": (), "empty list": [], "empty dict": {},
    "nested": {"a": [torch.arange(3), (1, "x", {"y": None})], 5: (np.arange(4), [[]])},
}  # fmt: skip


def images(count: int, *shape: int) -> list[tuple[torch.Tensor, int]]:
    """Samples that are alike in everything but their values: an image and its label."""
    generator = torch.Generator().manual_seed(1)
    return [(torch.rand(shape or (3, 5, 7), generator=generator), i % 10) for i in range(count)]


def ragged(count: int) -> list[dict[str, Any]]:
    """Samples of different sizes."""
    return [
        {"tokens": torch.arange(7 * i % 13), "name": f"text {i}", "raw": bytes([i % 256]) * (i * 37 % 2000)}
        for i in range(count)
    ]


def mixed(count: int) -> list[Any]:
    """Mostly alike, but not always."""
    alike, others = images(count), ragged(count)
    return [others[i] if i % 3 == 1 else alike[i] for i in range(count)]
