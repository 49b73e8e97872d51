"""Settings that cost time for certain are found, and their healthy look-alikes are not."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)

import unstarve
from unstarve import machine
from unstarve.checks.objects import loader_speed
from unstarve.checks.objects.all_checks import check_loader
from unstarve.checks.objects.subject import Subject
from unstarve.model import Finding

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # no worker starts here


class Items(Dataset[torch.Tensor]):
    def __init__(self, length: int = 800) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((4,), float(index))


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        worker = get_worker_info()
        return iter(range(worker.id, 30, worker.num_workers) if worker is not None else range(30))


def found(dataset: Any, batches: tuple[Any, ...] = (), is_training: bool | None = None, **config: Any) -> Any:
    loader: DataLoader[Any] = DataLoader(dataset, **config)
    return about(loader, batches=batches, is_training=is_training)


def about(loader: DataLoader[Any], **facts: Any) -> list[Finding]:
    return check_loader(Subject(loader, "train_loader", "train_set", "train.py", 12, **facts))


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of 16 cores without a quota."""
    monkeypatch.setattr(machine, "usable_cores", lambda: 16)
    monkeypatch.setattr(machine, "cgroup_quota_cores", lambda: None)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)


def test_an_epoch_shorter_than_its_pipeline() -> None:
    (one,) = found(Items(48), batch_size=8, num_workers=4, shuffle=True)
    assert (one.id, one.where) == ("tiny-epochs", "train.py:12")
    assert one.message == "An epoch of train_loader has 6 batches; 4 workers prefetch 8."
    assert one.fix == (
        "Pass num_workers=3 to train_loader, "
        "or sampler=RandomSampler(train_set, num_samples=14 * len(train_set))."
    )


def test_epochs_that_fill_their_pipeline_are_healthy() -> None:
    assert found(Items(64), batch_size=8, num_workers=4) == []
    assert found(Items(48), batch_size=8) == []
    assert found(Stream(), batch_size=8, num_workers=4) == []
    assert found(Items(48), batch_size=8, num_workers=4, is_training=False) == [], "validation runs rarely"


def test_rows_of_tensors_that_are_read_one_by_one() -> None:
    rows = TensorDataset(torch.zeros(20_000, 3), torch.zeros(20_000))
    (one,) = found(rows, batch_size=128)
    assert one.id == "no-getitems"
    assert "128 rows a batch" in one.message
    assert "unstarve.DataLoader" in one.fix
    assert [one.id for one in found(Subset(rows, range(15_000)), batch_size=128)] == ["no-getitems"]


def test_rows_that_are_few_or_read_together_are_healthy() -> None:
    rows = TensorDataset(torch.zeros(20_000, 3))
    assert found(rows, batch_size=8) == []
    assert found(Subset(rows, range(900)), batch_size=128) == []
    assert found(rows, batch_size=128, is_training=False) == []
    assert found(Items(20_000), batch_size=128) == []
    assert found(rows, batch_size=128, collate_fn=list) == [], "the function may need single samples"
    assert about(unstarve.DataLoader(rows, batch_size=128)) == []


@pytest.fixture
def opencv(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A stand-in for OpenCV that computes with 16 threads; this module has imported it."""
    module = ModuleType("cv2")
    module.getNumThreads = lambda: 16  # type: ignore[attr-defined]  # as OpenCV's
    monkeypatch.setitem(sys.modules, "cv2", module)
    monkeypatch.setattr(sys.modules[Items.__module__], "cv2", module, raising=False)
    return module


def one_thread(worker: int) -> None:
    cv2.setNumThreads(0)  # type: ignore[name-defined]  # noqa: F821 - the stand-in


def test_threads_of_opencv_in_every_worker(opencv: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = found(Items(), batch_size=8, num_workers=4)
    assert one.id == "threads-per-worker"
    assert "16 threads in each of 4 workers: 64 threads on 16 cores" in one.message
    assert "cv2.setNumThreads(0)" in one.fix
    assert found(Items(), batch_size=8, num_workers=4, worker_init_fn=one_thread) == []
    assert found(list(range(800)), batch_size=8, num_workers=4) == [], "its code does not use OpenCV"
    opencv.getNumThreads = lambda: 1  # type: ignore[attr-defined]  # as OpenCV's
    assert found(Items(), batch_size=8, num_workers=4) == []


def test_more_workers_than_the_quota_has_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cgroup_quota_cores", lambda: 2.0)
    (one,) = found(Items(), batch_size=8, num_workers=16)
    assert one.id == "more-workers-than-cores"
    assert "has 16 workers; the container's CPU quota is 2 cores, although 16 are visible" in one.message
    assert one.fix == "Pass num_workers=2 to train_loader, or raise the quota."
    assert found(Items(), batch_size=8, num_workers=3) == []
    monkeypatch.setattr(machine, "cgroup_quota_cores", lambda: 16.0)
    assert found(Items(), batch_size=8, num_workers=16) == []


def back_on_all_cores(worker: int) -> None:
    os.sched_setaffinity(0, range(os.cpu_count() or 1))


def test_a_process_that_was_confined_to_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "first_cores", 16)
    monkeypatch.setattr(machine, "main_thread_cores", lambda: [0])
    (one,) = found(Items(), batch_size=8, num_workers=4)
    assert one.id == "worker-affinity"
    assert (
        "Python started with 16 cores; now this process, and with it 4 workers, may use 1 core" in one.message
    )
    assert found(Items(), batch_size=8) == []
    assert found(Items(), batch_size=8, num_workers=4, worker_init_fn=back_on_all_cores) == []
    monkeypatch.setattr(machine, "first_cores", 1)
    assert found(Items(), batch_size=8, num_workers=4) == [], "somebody started it on one core"
    monkeypatch.setattr(machine, "first_cores", None)
    assert found(Items(), batch_size=8, num_workers=4) == [], "unknown"


def test_batches_of_many_tensors() -> None:
    many = [{"boxes": torch.zeros(3), "labels": torch.zeros(3)} for _ in range(40)]
    (one,) = found(Items(), (many,), batch_size=8, num_workers=2)
    assert one.id == "many-tensors"
    assert one.message == "A batch of train_loader consists of 80 tensors."
    assert found(Items(), (many,), batch_size=8) == [], "nothing is sent"
    assert found(Items(), (many[:10],), batch_size=8, num_workers=2) == []


def test_batches_in_pageable_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    images = (torch.zeros(8, 3, 224, 224), torch.zeros(8))
    assert found(Items(), (images,), batch_size=8) == [], "CUDA is not used"
    monkeypatch.setattr(loader_speed, "cuda_in_use", lambda: True)
    (one,) = found(Items(), (images,), batch_size=8)
    assert one.id == "not-pinned"
    assert "4.8 MB" in one.message or "5 MB" in one.message
    assert "pin_memory=True" in one.fix
    assert found(Items(), (torch.zeros(8, 3),), batch_size=8) == [], "too small to matter"
    assert found(Items(), (images,), batch_size=8, is_training=False) == []
    assert found(Items(), (images,), batch_size=8, pin_memory=True) == []


class Files(Items):
    def __init__(self, folder: Path, length: int, nbytes: int) -> None:
        super().__init__(length)
        (folder / "0.png").write_bytes(bytes(nbytes))
        self.paths = [str(folder / "0.png")] * length


def test_many_small_files_on_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far = str(tmp_path)

    def mounted(folders: Counter[str]) -> Counter[str]:
        return Counter({"nfs4" if folder.startswith(far) else "ext4": 1 for folder in folders})

    monkeypatch.setattr(loader_speed, "filesystems", mounted)
    (one,) = found(Files(tmp_path, 2000, 5000), batch_size=8)
    assert one.id == "network-small-files"
    assert f"reads 2,000 files of about 5 KB from {tmp_path} (nfs4)" in one.message
    assert "local disk" in one.fix
    assert found(Files(tmp_path, 2000, 2_000_000), batch_size=8) == []
    assert found(Files(tmp_path, 20, 5000), batch_size=8) == []
    monkeypatch.setattr(loader_speed, "filesystems", lambda folders: Counter({"9p": 1}))
    assert found(Files(tmp_path, 2000, 5000), batch_size=8) == [], "the machine's own disk"


def test_more_weights_than_torch_draws_from() -> None:
    weights = torch.ones(1, dtype=torch.float64)
    sampler = WeightedRandomSampler(weights.expand((1 << 24) + 1), 10)  # type: ignore[arg-type]  # a tensor
    (one,) = found(Items(), batch_size=8, sampler=sampler)
    assert (one.id, one.severity) == ("too-many-weights", "error")
    assert "16,777,217 weights" in one.message
    healthy = WeightedRandomSampler([1.0] * 800, 800)
    assert found(Items(), batch_size=8, sampler=healthy) == []
