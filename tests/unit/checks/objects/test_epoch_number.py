"""An epoch number that persistent workers never see."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.helpers.checked import findings, ids
from torch.utils.data import ConcatDataset, DataLoader, Dataset


class Plain(Dataset[Any]):
    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return index + self.epoch


class Shared(Plain):
    def __init__(self) -> None:
        self.epoch: Any = torch.zeros((), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def set_epoch(self, epoch: int) -> None:
        self.epoch.fill_(epoch)


class InPlace(Shared):
    def set_epoch(self, epoch: int) -> None:
        self.epoch += epoch - self.epoch


class Counting(Plain):
    """Counts in the worker; `set_epoch` is for a restart."""

    def __getitem__(self, index: int) -> Any:
        self.epoch += index == 0
        return index + self.epoch


class Unused(Plain):
    def __getitem__(self, index: int) -> Any:
        return index


def test_a_plain_number_is_lost_in_persistent_workers() -> None:
    loader = DataLoader(Plain(), num_workers=1, persistent_workers=True)
    (found,) = findings(loader)
    assert found.id == "set-epoch-lost"
    assert "train_set.set_epoch() sets train_set.epoch in the training process only" in found.message
    assert [int(value) for value in loader] == [
        int(value) for value in (loader.dataset.set_epoch(5), loader)[1]
    ]


def test_inner_datasets_are_seen() -> None:
    loader = DataLoader(ConcatDataset([Plain(), Plain()]), num_workers=1, persistent_workers=True)
    assert ids(loader) == ["set-epoch-lost"] * 2


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(Plain(), num_workers=1),
        DataLoader(Plain()),
        DataLoader(Shared(), num_workers=1, persistent_workers=True),
        DataLoader(InPlace(), num_workers=1, persistent_workers=True),
        DataLoader(Counting(), num_workers=1, persistent_workers=True),
        DataLoader(Unused(), num_workers=1, persistent_workers=True),
    ],
)
def test_numbers_that_reach_the_workers_are_left_alone(loader: DataLoader[Any]) -> None:
    assert ids(loader) == []
