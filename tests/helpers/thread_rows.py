"""Datasets whose batches threads can make, and loaders that have threads make them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, Sampler

import unstarve
from unstarve.fixes.memory.buffers import empty_batch

COUNT = 23


class Rows(Dataset[Any]):
    """Samples (row i, i), which can be read as batches by several threads."""

    releases_gil = True

    def __init__(self, count: int = COUNT) -> None:
        self.count = count
        self.asked: list[list[int]] = []
        self.bad: set[int] = set()
        self.gate: threading.Event | None = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return torch.full((3,), float(index)), index

    def read_batch(self, indices: Sequence[int]) -> Any:
        wanted = [int(index) for index in indices]
        self.asked.append(wanted)
        if self.gate is not None:
            assert self.gate.wait(180)
        if bad := self.bad & set(wanted):
            raise KeyError(f"no row {min(bad)}")
        batch = empty_batch((len(indices), 3), torch.float32)
        labels = torch.as_tensor(np.asarray(indices))
        batch[:] = labels[:, None]
        return [batch, labels]


class Split(Rows):
    """A dataset that reads each batch with all threads, so that the loop's own thread may read, too."""

    splits_batches = True


def ours(dataset: Any, **arguments: Any) -> unstarve.DataLoader[Any]:
    loader: unstarve.DataLoader[Any] = unstarve.DataLoader(dataset, engine="threads", **arguments)
    assert loader.engine == "threads"
    return loader


def reading_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("unstarve-read")]


class OneByOne(Sampler[int]):
    """Draws from the default generator for every index."""

    def __iter__(self) -> Iterator[int]:
        for _ in range(20):
            yield int(torch.randint(COUNT, ()))

    def __len__(self) -> int:
        return 20
