"""Datasets with lists and dicts, for `unstarve.share`; spawned workers can import them."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any, NamedTuple

from torch.utils.data import Dataset


class Entry(NamedTuple):
    """A row of a list, as people write them."""

    path: str
    label: int


class Listed(Dataset[Any]):
    """Samples are read from the attributes of the object alone."""

    def __init__(self, count: int) -> None:
        self.paths = [f"/data/train/class {i % 10}/{i}.jpg" for i in range(count)]
        self.samples = [(path, i % 10) for i, path in enumerate(self.paths)]
        self.imgs = self.samples
        self.numbers = {path: i for i, path in enumerate(self.paths)}
        self.transform = str.upper
        self.few = [1, 2, 3]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[str, str, int, int]:
        path, label = self.samples[index]
        return self.paths[index], self.transform(path), label, self.numbers[path]


class Measured(Dataset[Any]):
    """A sample is a worker's round through all its texts: the memory it made dirty, in bytes."""

    def __init__(self, count: int) -> None:
        self.texts = [f"/data/train/{i:08d}.jpg" for i in range(count)]

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        before = dirty_bytes()
        read_all(self.texts)
        return dirty_bytes() - before


def read_all(texts: Any) -> int:
    return sum(len(texts[index]) for index in range(len(texts)))


def dirty_bytes() -> int:
    """The memory that only this process has and has written to."""
    rollup = Path(f"/proc/{os.getpid()}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Private_Dirty"))


def value_lists(seed: int) -> dict[str, list[Any]]:
    """Lists of every kind that can be shared, with random values and lengths."""
    draw = random.Random(seed)
    size = range(draw.randint(1, 1200))  # more than are read at once

    def text() -> str:
        return "".join(draw.choice("ab/._-") for _ in range(draw.randint(0, 9)))

    def odd() -> str:
        return text() + draw.choice(["ä", "🙂", os.fsdecode(b"\xff\xfe"), "\ud83d\ude00", "\0"])

    def number() -> Any:
        return draw.choice([draw.randint(-9, 9), draw.random(), None, True])

    bits = draw.choice([6, 14, 30, 62])
    return {
        "texts": [text() for _ in size],
        "odd texts": [odd() for _ in size],
        "bytes": [draw.randbytes(draw.randint(0, 5)) for _ in size],
        "integers": [draw.randint(-(2**bits), 2**bits) for _ in size],
        "extreme integers": [draw.choice([-(2**63), 2**63 - 1]) for _ in size],
        "integers beyond 64 bits": [draw.randint(-(2**80), 2**80) for _ in size],
        "floats": [draw.choice([draw.random(), float("inf"), -0.0, 5e-324]) for _ in size],
        "booleans": [draw.random() < 0.5 for _ in size],
        "nothing": [None for _ in size],
        "mixed": [draw.choice([text(), number(), (text(), number()), b"x"]) for _ in size],
        "paths": [Path(odd()) for _ in size],
        "tuples": [(odd(), draw.randint(0, 9), number()) for _ in size],
        "nested tuples": [(text(), (draw.random(), Path(text()))) for _ in size],
        "uneven tuples": [tuple(text() for _ in range(draw.randint(0, 3))) for _ in size],
        "empty tuples": [() for _ in size],
        "named tuples": [Entry(text(), draw.randint(0, 99)) for _ in size],
        "token lists": [[draw.randint(0, 50_000) for _ in range(draw.randint(0, 4))] for _ in size],
        "empty lists": [[] for _ in size],
        "mixed lists": [[number() for _ in range(draw.randint(0, 4))] for _ in size],
        "records": [{"id": i, "name": odd(), "box": [draw.random()] * 4, "note": number()} for i in size],
        "uneven records": [dict.fromkeys(text() for _ in range(draw.randint(0, 2))) for _ in size],
        "records in lists": [[{"id": i, "of": text()}] * draw.randint(0, 2) for i in size],
    }
