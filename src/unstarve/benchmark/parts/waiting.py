"""Part prefetch: samples that are waited for."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from unstarve.benchmark.entries import PartPlan, faster, ours, public, stock
from unstarve.benchmark.plan import Sizes
from unstarve.words import duration

THREADS = 16


class Remote(Dataset[Any]):
    """Every sample takes its time to come, and no CPU."""

    def __init__(self, count: int, wait_s: float) -> None:
        self.count = count
        self.wait_s = wait_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.wait_s)
        return torch.tensor(index)


class RemoteAsync(Remote):
    """The same, as a coroutine."""

    async def __getitem__(self, index: int) -> Any:
        await asyncio.sleep(self.wait_s)
        return torch.tensor(index)


@dataclass(frozen=True)
class Waited:
    """What to wait for, and how it is to be loaded."""

    count: int
    wait_s: float
    batch_size: int

    def source(self) -> Remote:
        """The dataset as most people write it."""
        return Remote(self.count, self.wait_s)

    @property
    def options(self) -> dict[str, Any]:
        """What loaders are given."""
        return {"batch_size": self.batch_size, "shuffle": True}


def _prepare(sizes: Sizes, _: Path) -> Waited:
    return Waited(sizes.waited_for, sizes.wait_s, sizes.waited_batch)


def _ahead(loader: Any, kind: type[Remote], waited: Waited) -> Any:
    source = kind(waited.count, waited.wait_s)
    dataset = public("AsyncPrefetchDataset")(source, queue_size=2 * THREADS, num_workers=THREADS)
    return loader(dataset, **waited.options)


WAITING = (
    PartPlan(
        "prefetch", "prefetch",
        lambda s: f"{s.waited_for} samples of {duration(s.wait_s, tick=True)} of waiting, {THREADS} threads",
        _prepare,
        (
            stock(lambda waited: DataLoader(waited.source(), **waited.options)),
            ours("AsyncPrefetchDataset, torch's", lambda w: _ahead(DataLoader, Remote, w), faster(12)),
            ours("AsyncPrefetchDataset, ours", lambda w: _ahead(public("DataLoader"), Remote, w), faster(12)),
            ours("the same with async def", lambda w: _ahead(DataLoader, RemoteAsync, w), faster(12)),
        ),
    ),
)  # fmt: skip
