"""Samples that are views of one buffer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers.checked import findings, first_batches, ids
from torch.utils.data import DataLoader, Dataset, Subset


class Reused(Dataset[Any]):
    def __init__(self) -> None:
        self.buffer = np.zeros(3)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        self.buffer[:] = index
        return torch.from_numpy(self.buffer), index


class Filled(Reused):
    def __init__(self) -> None:
        self.tensor = torch.zeros(3)

    def __getitem__(self, index: int) -> Any:
        self.tensor.copy_(torch.full((3,), index))
        return {"image": self.tensor}


class Copied(Reused):
    def __getitem__(self, index: int) -> Any:
        self.buffer[:] = index
        return self.buffer.copy(), index


class Cached(Reused):
    def __getitem__(self, index: int) -> Any:
        self.buffer[index % 3] = index
        return self.buffer[index % 3]


@pytest.mark.parametrize(
    ("dataset", "path"),
    [
        (Reused(), "train_set.buffer"),
        (Filled(), "train_set.tensor"),
        (Subset(Reused(), range(4)), "train_set.dataset.buffer"),
    ],
)
def test_a_buffer_that_is_delivered_is_found(dataset: Dataset[Any], path: str) -> None:
    loader = DataLoader(dataset, batch_size=4)
    (found,) = findings(loader, batches=first_batches(loader, 1))
    assert found.id == "shared-batch-memory"
    assert path in found.message
    assert "Return a copy" in found.fix


def test_copies_and_single_samples_are_left_alone() -> None:
    for dataset in (Copied(), Cached()):
        loader = DataLoader(dataset, batch_size=4)
        assert ids(loader, batches=first_batches(loader, 1)) == []
    assert ids(DataLoader(Reused(), batch_size=1)) == []
    assert ids(DataLoader(Reused(), batch_size=None)) == []


def test_a_batch_of_different_samples_is_proof_of_the_contrary() -> None:
    loader = DataLoader(Reused(), batch_size=4)
    assert ids(loader, batches=((torch.arange(12.0).reshape(4, 3), torch.arange(4)),)) == []
