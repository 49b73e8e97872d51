"""Samples for which a whole column or file is read; with a small stand-in for `datasets`."""

from __future__ import annotations

import sys
import tarfile
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from unstarve.checks.objects.subject import Subject
from unstarve.checks.objects.whole_reads import whole_reads
from unstarve.collect.dataset_facts import dataset_facts


class Dataset:
    """Rows of a stand-in for `datasets`, which are never read."""

    __module__ = "datasets.arrow_dataset"


class Samples(TorchDataset[Any]):
    def __init__(self, held: Any = None) -> None:
        self.rows, self.path, self.opened = Dataset(), "data/train.tar", held

    def __len__(self) -> int:
        return 100


class AllRows(Samples):
    def __getitem__(self, index: int) -> Any:
        return self.rows[:]["x"][index]  # type: ignore[index]  # a stand-in


class AllOfAColumn(Samples):
    def __getitem__(self, at: int) -> Any:
        return np.array(self.rows["x"])[at]  # type: ignore[index]  # a stand-in


class ColumnFirst(Samples):
    def __getitem__(self, index: int) -> Any:
        return self.rows["x"][index]  # type: ignore[index]  # a stand-in


class RowFirst(Samples):
    def __getitem__(self, index: int) -> Any:
        return self.rows[index]["x"]  # type: ignore[index]  # a stand-in


class Reopened(Samples):
    def __getitem__(self, index: int) -> Any:
        with tarfile.open(self.path) as tar:
            return tar.extractfile(f"{index}.png")


class OpenedOnce(Samples):
    def __getitem__(self, index: int) -> Any:
        if self.opened is None:
            self.opened = tarfile.open(self.path)  # noqa: SIM115 - it stays open
        return self.opened.extractfile(f"{index}.png")


class Loaded(Samples):
    def __getitem__(self, index: int) -> Any:
        return np.load(self.path)[index]


class Mapped(Samples):
    def __getitem__(self, index: int) -> Any:
        return np.load(self.path, mmap_mode="r")[index]


class AFileEach(Samples):
    def __getitem__(self, index: int) -> Any:
        return np.load(self.path.format(index))


@pytest.fixture(autouse=True)
def version(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("datasets")
    module.__version__ = "5.2.0"  # type: ignore[attr-defined]  # a stand-in
    monkeypatch.setitem(sys.modules, "datasets", module)
    return module


def found(dataset: Samples) -> dict[str, str]:
    return {one.id: one.fix for one in whole_reads(Subject(DataLoader(dataset, shuffle=True)))}


def test_all_rows_of_a_hugging_face_dataset_are_not_read_for_one() -> None:
    assert found(AllRows()) == {"column-first": "self.rows[index]['x']"}
    assert found(AllOfAColumn()) == {"column-first": "self.rows[at]['x']"}


def test_a_column_is_lazy_since_version_4(version: Any) -> None:
    assert found(ColumnFirst()) == {}
    version.__version__ = "3.6.0"
    assert found(ColumnFirst()) == {"column-first": "self.rows[index]['x']"}


def test_an_archive_is_not_opened_for_each_sample() -> None:
    (fix,) = found(Reopened()).values()
    assert found(Reopened()).keys() == {"file-read-again"}
    assert fix == "Open self.path on first use and keep it, with a dict of its members by name."


def test_a_file_is_not_loaded_for_each_of_its_rows() -> None:
    assert found(Loaded()) == {"file-read-again": 'Map it with np.load(self.path, mmap_mode="r").'}


@pytest.mark.parametrize("dataset", [RowFirst(), OpenedOnce(), Mapped(), AFileEach()])
def test_what_reads_one_sample_is_right(dataset: Samples) -> None:
    assert found(dataset) == {}


def test_a_run_file_keeps_what_advice_needs() -> None:
    facts = dataset_facts(AllRows())
    assert facts["whole_read"] == "self.rows[:]['x']"
    assert facts["whole_what"] == "every row of self.rows"
    assert facts["whole_instead"] == "self.rows[index]['x']"
    assert "whole_read" not in dataset_facts(RowFirst())
