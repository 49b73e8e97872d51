"""Samples of every kind that can be cached."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

Point = namedtuple("Point", "x y")


class Source(Dataset[Any]):
    """Samples made by a function, and how often each was asked for."""

    def __init__(self, make: Callable[[int], Any], count: int = 12) -> None:
        self.make = make
        self.count = count
        self.asked: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        return self.make(index)


def image(index: int) -> torch.Tensor:
    return (torch.arange(48, dtype=torch.uint8) + index).reshape(3, 4, 4)


COLLATED: dict[str, Callable[[int], Any]] = {
    "tensor": image,
    "bfloat16": lambda i: torch.tensor([i, 2 * i], dtype=torch.bfloat16),
    "float8": lambda i: torch.tensor([i, 2]).to(torch.float8_e4m3fn),
    "complex": lambda i: torch.tensor([i + 1j * i]),
    "no dimensions": torch.tensor,
    "empty tensor": lambda i: torch.empty(0, 3),
    "transposed": lambda i: (torch.arange(6) + i).reshape(2, 3).T,
    "array": lambda i: np.full((2, 3), i, np.float32),
    "uint16 array": lambda i: np.full(3, i, np.uint16),
    "array without dimensions": np.array,
    "pair": lambda i: (image(i), i),
    "list": lambda i: [image(i), float(i)],
    "dict": lambda i: {"image": image(i), "label": i, "weight": i / 3, "flag": i % 2 == 0, "name": f"№{i}"},
    "nested": lambda i: {"x": (image(i), [np.int16(i), {"y": np.bool_(i % 2)}]), "ids": (f"a{i}", b"b")},
    "scalars": lambda i: (np.float32(i), np.int64(i), np.uint8(i), np.float64(i)),
    "bare int": lambda i: i,
    "bare float": lambda i: i / 2,
    "bare text": lambda i: f"text {i}",
    "text only": lambda i: (f"text {i}", "x"),
    "negative": lambda i: (-i, -(2**63), 2**63 - 1),
    "namedtuple": lambda i: Point(image(i), i),
    "ordered dict": lambda i: OrderedDict(b=i, a=image(i)),
    "empty tuple": lambda i: (),
    "mixed numbers": lambda i: (i if i % 3 else i / 2, i),
}
ONLY_SAMPLES: dict[str, Callable[[int], Any]] = {
    "ragged": lambda i: (torch.arange(i % 5), i),
    "ragged arrays": lambda i: {"boxes": np.ones((i % 3, 4), np.float32), "label": i},
    "none": lambda i: (image(i), None),
    "huge int": lambda i: (2**63 + i, i),
    "structure differs": lambda i: (i,) if i % 4 else {"i": i},
    "keys differ": lambda i: {"a": i, "b": i} if i % 4 else {"b": i, "a": i},
    "long list": lambda i: list(range(i + 40)),
    "strings in an array": lambda i: np.array([f"a{i}", "b"]),
    "times": lambda i: np.datetime64("2024-01-01") + i,
    "sparse": lambda i: torch.eye(3).mul(i).to_sparse(),
    "objects": lambda i: {"set": {i}, "range": range(i), "bytes": bytearray(b"x")},
    "late oddity": lambda i: image(i) if i != 7 else image(i)[:, :2],
}
MADE = {**COLLATED, **ONLY_SAMPLES}

X, Y = torch.linspace(-1, 1, 18).reshape(6, 3), torch.arange(6)
