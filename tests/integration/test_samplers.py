"""Samplers that plan an epoch when they are asked for their iterator are seen doing it."""

from __future__ import annotations

from typing import Any

import pytest

import unstarve
from unstarve.model import Epoch

PLANS = """
import time
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

class Numbers(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return torch.tensor(index)

class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(8))

class Eager:
    def __len__(self):
        return 4
    def __iter__(self):
        time.sleep(0.05)
        return iter([[0, 1], [2, 3], [4, 5], [6, 7]])

class Lazy(Eager):
    def __iter__(self):
        time.sleep(0.05)
        yield from [[0, 1], [2, 3], [4, 5], [6, 7]]

if __name__ == "__main__":
    for loader in (
        DataLoader(Numbers(), batch_sampler=Eager()),
        DataLoader(Numbers(), batch_sampler=Eager(), num_workers=1),
        DataLoader(Numbers(), batch_sampler=Eager(), num_workers=1, persistent_workers=True),
        DataLoader(Numbers(), batch_sampler=Lazy(), num_workers=1),
        StatefulDataLoader(Numbers(), batch_sampler=Eager(), num_workers=1),
        DataLoader(Stream(), batch_size=2, num_workers=1),
    ):
        for epoch in range(2):
            for batch in loader:
                pass
"""

ONCE_NS, TWICE_NS = 50_000_000, 100_000_000


def test_planning_an_epoch_is_the_samplers_time(project: Any) -> None:
    report = project.record(project.write("train.py", PLANS))
    run = unstarve.load_run(project.folder / "run.unstarve")
    (process,) = [p for p in run.processes if not p.worker]
    by_loader: dict[int, list[Epoch]] = {}
    for epoch in sorted(process.epochs, key=lambda epoch: epoch.begin_ns):
        by_loader.setdefault(epoch.loader, []).append(epoch)
    alone, workers, persistent, lazy, stateful, stream = by_loader.values()
    # A sleep is never too short. With workers torch asks for the iterator twice.
    assert all(e.sampler_ns >= ONCE_NS for e in alone + persistent + lazy + stateful)
    assert all(e.sampler_ns >= TWICE_NS for e in [*workers, persistent[0]])
    assert all(e.sampler_ns <= e.ready_ns - e.begin_ns for e in process.epochs)
    assert len(stream) == 2
    seconds = sum(line["seconds"] for line in [*report["budget"], *report["outside"]])
    assert seconds == pytest.approx(report["run"]["wall_s"], rel=0.01)
    assert report["lost"] == []
