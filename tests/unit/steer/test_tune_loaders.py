"""What is seen of a script's loaders before they are iterated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from unstarve.steer.tune_loaders import shuffles

DATA = TensorDataset(torch.arange(8))


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(8))


@pytest.mark.parametrize(
    ("loader", "expected"),
    [
        (DataLoader(DATA, shuffle=True), True),
        (DataLoader(DATA, sampler=WeightedRandomSampler([1.0] * 8, 8)), True),
        (DataLoader(DATA, batch_sampler=BatchSampler(RandomSampler(DATA), 2, drop_last=False)), True),
        (DataLoader(DATA, batch_size=None, shuffle=True), True),
        (DataLoader(DATA, sampler=DistributedSampler(DATA, 2, 0)), True),
        (DataLoader(DATA, sampler=DistributedSampler(DATA, 2, 0, shuffle=False)), False),
        (DataLoader(DATA), False),
        (DataLoader(DATA, batch_sampler=BatchSampler(SequentialSampler(DATA), 2, drop_last=False)), False),
        (DataLoader(DATA, batch_sampler=[[0, 1], [2]]), False),
        (DataLoader(Stream()), False),
    ],
)
def test_a_loader_with_a_random_sampler_shuffles(loader: DataLoader[Any], expected: bool) -> None:
    assert shuffles(loader) is expected
