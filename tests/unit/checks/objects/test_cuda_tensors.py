"""GPU tensors in workers; a meta tensor stands in for one on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.helpers.checked import findings, ids
from torch.utils.data import DataLoader, Dataset, TensorDataset

from unstarve.checks.objects import cuda_tensors


@pytest.fixture(autouse=True)
def meta_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_tensors, "_DEVICES", frozenset({"cuda", "meta"}))


class Embedded(Dataset[Any]):
    def __init__(self, device: str) -> None:
        self.net = torch.nn.Linear(2, 2, device=device)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return self.net(torch.zeros(2))


def test_tensors_that_a_worker_would_use_are_found() -> None:
    data = TensorDataset(torch.zeros(4, device="meta"))
    (found,) = findings(DataLoader(data, num_workers=2))
    assert found.id == "cuda-in-worker"
    assert found.message == "train_set.tensors[0] is a tensor on meta, which 2 workers cannot use."
    (spawned,) = findings(DataLoader(data, num_workers=2, multiprocessing_context="spawn"))
    assert "each open a CUDA context" in spawned.message


def test_a_model_in_the_dataset_is_found() -> None:
    assert ids(DataLoader(Embedded("meta"), num_workers=1)) == ["cuda-in-worker"]
    assert ids(DataLoader(Embedded("cpu"), num_workers=1)) == []


def test_batches_that_workers_put_on_a_gpu_are_found() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(4)), num_workers=2)
    (found,) = findings(loader, batches=(torch.zeros(2, device="meta"),))
    assert found.id == "cuda-in-worker"
    assert "deliver tensors on meta" in found.message


def test_without_workers_the_gpu_may_be_used() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(4, device="meta")))
    assert ids(loader, batches=(torch.zeros(2, device="meta"),)) == []
