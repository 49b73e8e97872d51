"""Loaders and helpers that several tests share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset


def numbered(batches: int = 6, size: int = 4, **options: Any) -> DataLoader[Any]:
    """A loader whose batch n holds the numbers from ``n * size`` on."""
    return DataLoader(TensorDataset(torch.arange(batches * size)), batch_size=size, **options)


def first_numbers(batches: Any) -> list[int]:
    return [int(batch[0][0]) for batch in batches]


def shared_memory_descriptors() -> int:
    """Open descriptors of shared memory that a worker sent a tensor in."""
    links = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor of this very listing
            links.append(str(link.readlink()))
    return sum("/torch_" in link for link in links)


class Stream(IterableDataset[torch.Tensor]):
    """Yields `samples` numbers (for ever, if None) and may claim another length."""

    def __init__(self, samples: int | None, claimed: int | None = None) -> None:
        self.samples = samples
        self.claimed = claimed
        self.read = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        n = 0
        while self.samples is None or n < self.samples:
            self.read += 1
            yield torch.tensor(n)
            n += 1

    def __len__(self) -> int:
        if self.claimed is None:
            raise TypeError("a stream has no length")
        return self.claimed


class Failing(Dataset[torch.Tensor]):
    """Sample 2 cannot be read."""

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 2:
            raise OSError("sample 2 is damaged")
        return torch.tensor(index)

    def __len__(self) -> int:
        return 4
