"""Wrong data that the ledger of a recorded training shows, with real loaders; and healthy look-alikes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, RandomSampler

import unstarve
from unstarve.api import diagnose, load_run
from unstarve.model import Diagnosis, Finding

pytestmark = pytest.mark.usefixtures("torch_as_it_was")

SAMPLES = 96


class Rows(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3,), float(index))


class Noisy(Rows):
    def __getitem__(self, index: int) -> torch.Tensor:
        return super().__getitem__(index) + np.random.rand()


class NoisyTorch(Rows):
    def __getitem__(self, index: int) -> torch.Tensor:
        return super().__getitem__(index) + torch.rand(())


def persistent_loader() -> DataLoader[Any]:
    return DataLoader(Noisy(), 8, num_workers=2, persistent_workers=True)


def without_tens(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack([one for one in samples if int(one[0]) % 10])


def seeded_alike(_worker: int) -> None:
    np.random.seed(1)


def seeded_by_number(worker: int) -> None:
    np.random.seed(worker)


def seeded_well(_worker: int) -> None:
    np.random.seed(torch.initial_seed() % 2**32)


def kept(loader: DataLoader[Any]) -> Iterator[DataLoader[Any]]:
    while True:
        yield loader


def trained(loaders: Iterator[DataLoader[Any]], epochs: int = 3, epoch_hook: Any = None) -> Diagnosis:
    weight = torch.zeros(3, requires_grad=True)
    with unstarve.recording() as recorded:
        for epoch in range(epochs):
            loader = next(loaders)
            if epoch_hook is not None:
                epoch_hook(loader, epoch)
            for batch in loader:
                (batch @ weight).sum().backward()
    return recorded.diagnosis


def found(diagnosis: Diagnosis) -> list[str]:
    return [one.id for one in diagnosis.health if one.id in LEDGER]


LEDGER = {
    "set-epoch-missed",
    "same-order",
    "ranks-not-split",
    "samples-missing",
    "samples-repeated",
    "worker-seeds-equal",
    "iterable-not-split",
}


def seeded_each_epoch() -> Iterator[DataLoader[Any]]:
    while True:
        yield DataLoader(Rows(), 8, shuffle=True, generator=torch.Generator().manual_seed(0))


CASES: dict[str, tuple[Callable[[], Iterator[DataLoader[Any]]], list[str]]] = {
    "a generator seeded anew in every epoch": (seeded_each_epoch, ["same-order"]),
    "a generator seeded once": (
        lambda: kept(DataLoader(Rows(), 8, shuffle=True, generator=torch.Generator().manual_seed(0))),
        [],
    ),
    "no shuffling, on purpose": (lambda: kept(DataLoader(Rows(), 8)), []),
    "sampling with replacement": (
        lambda: kept(DataLoader(Rows(), 8, sampler=RandomSampler(Rows(), replacement=True))),
        [],
    ),
    "a distributed sampler, and no set_epoch": (
        lambda: kept(DataLoader(Rows(), 8, num_workers=2, sampler=DistributedSampler(Rows(), 2, 0))),
        ["set-epoch-missed"],
    ),
    "a distributed sampler that does not shuffle": (
        lambda: kept(DataLoader(Rows(), 8, sampler=DistributedSampler(Rows(), 2, 0, shuffle=False))),
        [],
    ),
    "a collate_fn that leaves samples out": (
        lambda: kept(DataLoader(Rows(), 8, shuffle=True, num_workers=1, collate_fn=without_tens)),
        ["samples-missing"],
    ),
    "drop_last": (lambda: kept(DataLoader(Rows(), 36, shuffle=True, drop_last=True)), []),
    "workers seeded alike": (
        lambda: kept(DataLoader(Noisy(), 8, num_workers=2, worker_init_fn=seeded_alike)),
        ["worker-seeds-equal"],
    ),
    "workers seeded by their number, in every epoch": (
        lambda: kept(DataLoader(Noisy(), 8, num_workers=2, worker_init_fn=seeded_by_number)),
        ["worker-seeds-equal"],
    ),
    "persistent workers seeded by their number": (
        lambda: kept(
            DataLoader(Noisy(), 8, num_workers=2, worker_init_fn=seeded_by_number, persistent_workers=True)
        ),
        [],
    ),
    "workers seeded well": (
        lambda: kept(DataLoader(Noisy(), 8, num_workers=2, worker_init_fn=seeded_well)),
        [],
    ),
    "equal seeds of a library that nobody draws from": (
        lambda: kept(DataLoader(NoisyTorch(), 8, num_workers=2, worker_init_fn=seeded_alike)),
        [],
    ),
    "persistent workers, and new ones later": (
        lambda: iter([*[persistent_loader()] * 2, persistent_loader()]),
        [],
    ),
    "equal seeds that nobody uses": (
        lambda: kept(DataLoader(Rows(), 8, num_workers=2, worker_init_fn=seeded_alike)),
        [],
    ),
}


@pytest.mark.parametrize(("loaders", "ids"), CASES.values(), ids=CASES)
def test_the_ledger_names_wrong_data_and_nothing_else(
    loaders: Callable[[], Iterator[DataLoader[Any]]], ids: list[str]
) -> None:
    assert found(trained(loaders())) == ids


def test_set_epoch_in_every_epoch_is_right() -> None:
    loader = DataLoader(Rows(), 8, sampler=DistributedSampler(Rows(), 2, 0))
    assert found(trained(kept(loader), epoch_hook=lambda one, epoch: one.sampler.set_epoch(epoch))) == []


def test_validation_in_a_fixed_order_is_right() -> None:
    loader = DataLoader(Rows(), 8, sampler=DistributedSampler(Rows(), 2, 0))
    with unstarve.recording() as recorded, torch.no_grad():
        for _ in range(3):
            for batch in loader:
                batch.sum()
    assert found(recorded.diagnosis) == []


def test_the_numbers_are_those_of_the_epochs() -> None:
    loader = DataLoader(Rows(), 8, shuffle=True, collate_fn=without_tens)
    (finding,) = (one for one in trained(kept(loader)).health if one.id == "samples-missing")
    assert "30 samples of 288 were fetched for loader" in finding.message


STREAM = """
    import torch, itertools, sys
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info

    class Stream(IterableDataset):
        def __iter__(self):
            worker = get_worker_info()
            first, step = (worker.id, worker.num_workers) if SPLIT else (0, 1)
            for i in range(first, 100, step):
                yield torch.full((3,), float(i))

    loader = DataLoader(Stream(), 10, num_workers=2)
    for batch in loader:
        pass
"""


@pytest.mark.parametrize(("split", "ids"), [(False, ["iterable-not-split"]), (True, [])])
def test_streams_are_digested_on_request(split: bool, ids: list[str], tmp_path: Path) -> None:
    script, run = tmp_path / "train.py", tmp_path / "a.unstarve"
    script.write_text(dedent(STREAM).replace("SPLIT", str(split)))
    command = [sys.executable, "-m", "unstarve", "run", "--ledger", "-o", str(run), str(script)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    health: tuple[Finding, ...] = diagnose(load_run(run)).health
    assert [one.id for one in health if one.id in LEDGER] == ids
    if ids:
        assert "100 of the 200 samples of epoch 0 are repetitions" in health[0].message


def test_ranks_that_train_on_the_same_samples_are_told(tmp_path: Path) -> None:
    script, run = tmp_path / "train.py", tmp_path / "a.unstarve"
    script.write_text(
        dedent("""
        import os, sys, subprocess, torch
        from torch.utils.data import DataLoader, TensorDataset
        if "RANK" not in os.environ:
            command = [sys.executable, __file__]
            ranks = [subprocess.Popen(command, env=os.environ | {"RANK": str(r)}) for r in (0, 1)]
            sys.exit(max(rank.wait() for rank in ranks))
        loader = DataLoader(TensorDataset(torch.arange(64.0)), 4, shuffle=True)
        weight = torch.ones((), requires_grad=True)
        for (batch,) in loader:
            (batch * weight).sum().backward()
        """)
    )
    command = [sys.executable, "-m", "unstarve", "run", "-o", str(run), str(script)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (finding,) = (one for one in diagnose(load_run(run)).health if one.id in LEDGER)
    assert finding.id == "ranks-not-split"
    assert finding.message == "All 2 ranks of loader trained on the same 64 samples in their first epoch."
