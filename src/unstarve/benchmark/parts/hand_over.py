"""Parts f and g: what it costs to get a finished batch out of a worker process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from unstarve.benchmark.entries import PartPlan, faster, ours, public, stock
from unstarve.benchmark.plan import Sizes

Batch = dict[str, torch.Tensor]
_OPTIONS: dict[str, Any] = {"batch_size": None, "num_workers": 1}


class Ready(Dataset[Batch]):
    """Gives the same batch again and again, at no cost: all that is left is to hand it over."""

    def __init__(self, batch: Batch, count: int) -> None:
        self.batch = batch
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Batch:
        return self.batch


def _of_size(size_bytes: int, share: float) -> Callable[[Sizes, Path], Ready]:
    """Batches of this size; `share` of the number that the sizes say."""

    def prepare(sizes: Sizes, _: Path) -> Ready:
        batch = {"image": torch.zeros(64, size_bytes // 256), "label": torch.zeros(64, dtype=torch.int64)}
        return Ready(batch, max(10, round(sizes.handed_over * share)))

    return prepare


def _small_tensors(sizes: Sizes, _: Path) -> Ready:
    return Ready({f"column {n}": torch.zeros(64) for n in range(150)}, sizes.handed_over)


def _part(
    letter: str, name: str, title: str, prepare: Callable[[Sizes, Path], Ready], times: float
) -> PartPlan:
    entries = (
        stock(lambda ready: DataLoader(ready, **_OPTIONS)),
        ours("unstarve.DataLoader", lambda ready: public("DataLoader")(ready, **_OPTIONS), faster(times)),
    )
    return PartPlan(letter, name, lambda sizes: title, prepare, entries, skip=4, memory=True)


HAND_OVER = (
    _part("f", "handoff-1mb", "one worker hands over dicts of 1 MB", _of_size(1_000_000, 1.0), 10),
    _part("f", "handoff-20mb", "one worker hands over dicts of 20 MB", _of_size(20_000_000, 0.2), 5),
    _part("g", "small-tensors", "one worker hands over 150 small tensors", _small_tensors, 5),
)
