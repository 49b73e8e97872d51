"""HDF5 files whose chunks are much larger than a sample; with a small stand-in for h5py."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset

from unstarve.checks.objects.chunks import chunk_larger_than_sample
from unstarve.checks.objects.subject import Subject
from unstarve.collect.dataset_facts import dataset_facts


class Array:
    dtype, shape, compression = np.dtype("float32"), (512, 64, 64), "gzip"

    def __init__(self, chunks: tuple[int, ...] | None) -> None:
        self.chunks = chunks


class File:
    """Opens any name; its only array has the chunks that the name tells: ``256.h5``."""

    def __init__(self, name: str, mode: str = "r") -> None:
        self.filename, self.file = name, self

    def visititems(self, visit: Callable[[str, Any], None]) -> None:
        visit("x", Array((int(self.filename.partition(".")[0]), 64, 64)))

    def __enter__(self) -> File:
        return self

    def __exit__(self, *error: object) -> None:
        return


class Rows(Dataset[int]):
    def __init__(self, path: str) -> None:
        self.path = path

    def __len__(self) -> int:
        return 512

    def __getitem__(self, index: int) -> int:
        return index


@pytest.fixture(autouse=True)
def h5py(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("h5py")
    vars(module).update(File=File, Dataset=Array)
    monkeypatch.setitem(sys.modules, "h5py", module)


def fixes(path: str, **options: Any) -> list[str]:
    found = list(chunk_larger_than_sample(Subject(DataLoader(Rows(path), **options))))
    assert all(one.id == "chunk-larger-than-sample" for one in found)
    return [one.fix for one in found]


def test_a_shuffled_sample_costs_a_chunk() -> None:
    (fix,) = fixes("256.h5", shuffle=True)
    assert fix.startswith("h5repack -l x:CHUNK=1x64x64 256.h5")


def test_in_order_a_chunk_is_read_once_if_hdf5_can_keep_it() -> None:
    assert fixes("64.h5") == []  # 1 MiB
    assert len(fixes("256.h5")) == 1  # 4 MiB


def test_one_sample_per_chunk_is_right() -> None:
    assert fixes("1.h5", shuffle=True) == []


def test_a_run_file_keeps_what_advice_needs() -> None:
    facts = dataset_facts(Rows("256.h5"))
    assert (facts["chunk_array"], facts["chunk_shape"], facts["chunk_bytes"]) == ("x", "256x64x64", 4 << 20)
