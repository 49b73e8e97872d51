"""What a batch holds and how a loader was made."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, TensorDataset

from unstarve import marks
from unstarve.collect.call_site import variable_name
from unstarve.collect.describe import batch_extent, dataset_words, failed_images, loader_config

Pair = namedtuple("Pair", "x y")
X, Y = torch.zeros(8, 3), torch.zeros(8, dtype=torch.int64)


@pytest.mark.parametrize(
    ("batch", "extent"),
    [
        (X, (8, 96)),
        ([X, Y], (8, 160)),
        ((X, Y), (8, 160)),
        (Pair(X, Y), (8, 160)),
        ({"x": X, "y": {"z": [Y]}}, (8, 160)),
        ([np.zeros((8, 2)), X], (8, 224)),
        ([X, ["a"] * 8], (8, 96)),
        (["a", "b"], (2, -1)),
        ("text", (-1, -1)),
        (None, (-1, -1)),
        ([], (-1, -1)),
        (torch.zeros(()), (-1, 4)),
        ([[X] * 100], (8, -1)),
    ],
)
def test_size_and_bytes_of_a_batch(batch: Any, extent: tuple[int, int]) -> None:
    assert batch_extent(batch) == extent


def test_an_uncollated_sample_is_one_and_a_ready_made_batch_is_as_many_as_it_holds() -> None:
    image, label = torch.zeros(3, 4, 4), torch.tensor(1)
    assert batch_extent((image, label), collated=False)[0] == 1
    assert batch_extent((X, Y), collated=False)[0] == 8
    assert batch_extent(("a text", 3), collated=False)[0] == -1
    assert batch_extent((["one", "two", "three"], [1, 2, 3]), collated=False)[0] == 3
    assert batch_extent({"text": ["one", "two", "three"], "label": [1, 2, 3]}, collated=False)[0] == 3
    assert batch_extent([("one", 1), ("two", 2)], collated=False)[0] == 2
    assert batch_extent({"text": ["a"] * 5000, "label": [1] * 5000}, collated=False)[0] == 5000


def test_a_loader_is_described_by_plain_data() -> None:
    loader = DataLoader(TensorDataset(X), batch_size=4, shuffle=True)
    config = loader_config(loader)
    assert config["batch_size"] == 4
    assert config["num_workers"] == 0
    assert config["dataset"] == "TensorDataset"
    assert config["sampler"] == "RandomSampler"
    assert config["collate_fn"] == "default_collate"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("train_loader = DataLoader(data)", "train_loader"),
        ("    self.loader: DataLoader[int] = DataLoader(data)", "loader"),
        ("return DataLoader(data)", None),
        ("if a == DataLoader(data):", None),
    ],
)
def test_a_loader_is_called_what_the_source_calls_it(tmp_path: Any, line: str, name: str | None) -> None:
    source = tmp_path / "train.py"
    source.write_text(line + "\n")
    assert variable_name(str(source), 1) == name


def test_a_loader_is_described_with_what_unstarve_left_on_it() -> None:
    loader: DataLoader[Any] = DataLoader(TensorDataset(X))
    assert not {"engine", "applied", "applied_entry"} & loader_config(loader).keys()
    loader.__dict__[marks.RUNS_ON] = "gather"
    loader.__dict__[marks.APPLIED] = (1, "num_workers 0 → 2")
    config = loader_config(loader)
    assert (config["engine"], config["applied_entry"], config["applied"]) == (
        "gather",
        1,
        "num_workers 0 → 2",
    )


def test_a_loader_that_chooses_its_engine_is_asked() -> None:
    class Chooses(marks.ChoosesEngine):
        engine = "views"

    assert loader_config(Chooses())["engine"] == "views"


def test_failed_images_are_counted_by_whoever_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "_failed_images", [])
    assert failed_images() == 0
    marks.count_failed_images_with(lambda: 2)
    marks.count_failed_images_with(lambda: 3)
    assert failed_images() == 5


class NoLength:
    def __getitem__(self, index: int) -> int:
        return index


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter([1])

    def __len__(self) -> int:
        raise AssertionError("torch warns if the length of a stream that was asked for is wrong")


class Unknown(NoLength):
    def __len__(self) -> int:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (TensorDataset(torch.zeros(5, 2)), "TensorDataset[5]"),
        ([1, 2, 3], "list[3]"),
        (NoLength(), "NoLength"),
        (Unknown(), "Unknown"),
        (Stream(), "Stream"),
    ],
)
def test_a_dataset_is_known_by_its_class_and_length(dataset: Any, words: str) -> None:
    assert dataset_words(dataset) == words


def test_the_order_of_a_batch_sampler_is_that_of_the_sampler_inside() -> None:
    rows = TensorDataset(torch.arange(8))
    passed = DataLoader(rows, batch_sampler=BatchSampler(RandomSampler(rows), 2, False))
    assert loader_config(passed)["sampler"] == "RandomSampler"
    assert loader_config(DataLoader(rows, shuffle=True))["sampler"] == "RandomSampler"
    assert loader_config(DataLoader(rows, batch_size=None))["sampler"] == "SequentialSampler"
