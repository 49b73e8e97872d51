"""Batches in flight against the limits of a machine."""

from __future__ import annotations

import os
import resource
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers.checked import findings, ids
from torch.utils.data import DataLoader, Dataset, TensorDataset

from unstarve import DataLoader as OurLoader
from unstarve import machine

BATCH = (torch.zeros(1_000_000, dtype=torch.uint8),)


@pytest.fixture
def space(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets how many bytes are free in /dev/shm."""

    def free(count: int) -> None:
        monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=count, f_frsize=1))

    return free


def loader_of(workers: int = 2, **settings: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(100)), num_workers=workers, **settings)


def test_batches_that_do_not_fit_into_shared_memory_are_found(space: Any) -> None:
    space(4_500_000)
    (found,) = findings(loader_of(prefetch_factor=3), batches=(BATCH,))
    assert found.id == "shm-full"
    assert found.message == "7 batches of 1 MB make 7 MB, and /dev/shm has 4 MB free."
    assert "num_workers=2 and prefetch_factor=1" in found.fix
    assert "--shm-size=1g" in found.fix


def test_all_ranks_of_the_machine_count(space: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    space(12_000_000)
    assert ids(loader_of(), batches=(BATCH,)) == []
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    (found,) = findings(loader_of(), batches=(BATCH,))
    assert "5 batches of 1 MB on each of 4 ranks make 20 MB" in found.message


def test_batches_that_do_not_pass_through_shared_memory_are_left_alone(space: Any) -> None:
    space(1_000)
    assert ids(loader_of(0), batches=(BATCH,)) == []
    assert ids(loader_of()) == []  # no batch was seen
    assert ids(loader_of(), batches=(np.zeros(1_000_000),)) == []  # sent through a pipe
    ours = OurLoader(TensorDataset(torch.arange(100)), num_workers=2)
    assert ids(ours, batches=(BATCH,)) == []


class Large(Dataset[Any]):
    def __init__(self) -> None:
        self.rows = np.zeros(10_000_000, dtype=np.uint8)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


def test_more_memory_than_there_is_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_bytes", lambda: 15_000_000)
    assert ids(DataLoader(Large(), num_workers=2), batches=(BATCH,)) == []
    (copied,) = findings(
        DataLoader(Large(), num_workers=2, multiprocessing_context="spawn"), batches=(BATCH,)
    )
    assert copied.id == "memory-limit"
    assert (
        "5 batches of 1 MB and 2 copies of train_set make 25 MB, and 15 MB of memory are free"
        in copied.message
    )
    monkeypatch.setattr(machine, "available_bytes", lambda: 4_000_000)
    (batches,) = findings(DataLoader(Large(), num_workers=2), batches=(BATCH,))
    assert batches.id == "memory-limit"


def test_more_tensors_than_descriptors_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 4096))
    many, few = [torch.zeros(1) for _ in range(600)], [torch.zeros(1) for _ in range(60)]
    (found,) = findings(loader_of(), batches=(many,))
    assert found.id == "descriptors"
    assert "2 batches of 600 tensors need 1,200 file descriptors at a time" in found.message
    assert ids(loader_of(), batches=(few,)) == []
    assert ids(loader_of(0), batches=(many,)) == []
    monkeypatch.setattr(torch.multiprocessing, "get_sharing_strategy", lambda: "file_system")
    assert ids(loader_of(), batches=(many,)) == []
