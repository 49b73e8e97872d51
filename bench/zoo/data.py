"""Datasets around a function that loads one sample, and a training loop; all of it can be pickled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from zoo.truth import Truth
from zoo.work import burn, parse

Load = Callable[[int], Any]


class Items(Dataset[Any]):
    """Map style: sample `index` is ``load(index)``."""

    def __init__(self, count: int, load: Load) -> None:
        self.count = count
        self.load = load

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.load(index)


class Stream(IterableDataset[Any]):
    """Iterable style: the same samples, every worker its share."""

    def __init__(self, count: int, load: Load) -> None:
        self.count = count
        self.load = load

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        first, stride = (worker.id, worker.num_workers) if worker else (0, 1)
        for index in range(first, self.count, stride):
            yield self.load(index)


@dataclass(frozen=True)
class Fixed:
    """A sample that costs next to nothing."""

    floats: int = 64

    def __call__(self, index: int) -> torch.Tensor:
        return torch.full((self.floats,), float(index))


@dataclass(frozen=True)
class Words:
    """A sample without tensors: a list of such samples is handed over at once."""

    def __call__(self, index: int) -> tuple[int, str]:
        return index, "a few words"


@dataclass(frozen=True)
class Slow:
    """A sample that burns CPU and sleeps."""

    cpu_ms: float = 0.0
    sleep_ms: float = 0.0
    chunk: Callable[[], None] = parse

    def __call__(self, index: int) -> torch.Tensor:
        if self.sleep_ms:
            time.sleep(self.sleep_ms / 1e3)
        if self.cpu_ms:
            burn(self.cpu_ms, self.chunk)
        return torch.full((64,), float(index))


@dataclass(frozen=True)
class SlowCollate:
    """A batch that is slow to build."""

    cpu_ms: float
    chunk: Callable[[], None] = parse

    def __call__(self, samples: list[torch.Tensor]) -> torch.Tensor:
        burn(self.cpu_ms, self.chunk)
        return torch.stack(samples)


def fit(
    truth: Truth,
    loader: Iterable[Any],
    step: Callable[[Any], None],
    epochs: int = 1,
    epoch_steps: int | None = None,
) -> None:
    """A plain training loop."""
    for _ in range(epochs):
        for batch in truth.over(loader, epoch_steps):
            step(batch)
