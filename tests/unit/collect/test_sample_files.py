"""Slow samples have names: the file that the dataset lists, or the one that was opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, Subset

from unstarve.collect.sample_files import SlowestSamples, sample_file


class Listed(Dataset[Any]):
    def __init__(self, **lists: Any) -> None:
        self.__dict__.update(lists)

    def __len__(self) -> int:
        return 3

    @property
    def files(self) -> list[str]:
        raise AssertionError("a property may be dear")


NAMES = ["a.jpg", "b.jpg", "c.jpg"]


@pytest.mark.parametrize(
    "dataset",
    [
        Listed(samples=[(name, 0) for name in NAMES]),
        Listed(imgs=[[name, 0] for name in NAMES]),
        Listed(image_paths=[Path(name) for name in NAMES]),
        Listed(paths=tuple(NAMES)),
        Listed(samples=[1, 2, 3], filenames=NAMES),
        Subset(Listed(paths=NAMES), [0, 1]),
        Subset(Subset(Listed(paths=NAMES), [2, 0, 1]), [0, 2]),
    ],
)
def test_the_datasets_own_list_names_the_file(dataset: Dataset[Any]) -> None:
    assert sample_file(dataset, 1, "opened.bin") == "b.jpg"


@pytest.mark.parametrize(
    "dataset",
    [Listed(), Listed(paths=NAMES[:2]), Listed(samples=torch.zeros(3)), Listed(paths="abc"), object()],
)
def test_without_such_a_list_the_opened_file_does(dataset: Any) -> None:
    assert sample_file(dataset, 1, "opened.bin") == "opened.bin"


def test_only_samples_that_stand_out_are_worth_a_name() -> None:
    slowest = SlowestSamples()
    assert not slowest.is_one(1000)  # what is usual is not known yet
    assert not any(slowest.is_one(1000 + n) for n in range(50))
    assert slowest.is_one(9000)
    assert not slowest.is_one(1100)


def test_once_there_are_enough_only_slower_ones_are_named() -> None:
    slowest = SlowestSamples()
    found = []
    for n in range(200):
        slowest.is_one(10)
        found.append(slowest.is_one(100_000 + (n * 7919) % 1000))
    assert 10 <= sum(found) < 60
    assert all(found[:10])
