"""Part cpu-bound: samples that Python computes, which nothing here can make faster, nor may make slower."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from unstarve.benchmark.entries import Entry, PartPlan, faster, ours, public, stock
from unstarve.benchmark.plan import Sizes
from unstarve.words import duration

_TURNS_PER_S = 2e7
"""Of a Python loop, about."""


def compute(sample: torch.Tensor, turns: int) -> torch.Tensor:
    """Keep Python busy, as a decoder or a transform written in it would."""
    value = 0
    for turn in range(turns):
        value += turn & 3
    return sample + value


class Computed(Dataset[torch.Tensor]):
    """Every sample is computed anew."""

    def __init__(self, count: int, turns: int, batch_size: int) -> None:
        self.rows = torch.arange(count)
        self.turns = turns
        self.options: dict[str, Any] = {"batch_size": batch_size, "shuffle": True}

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.work(self.rows[index])

    def work(self, sample: torch.Tensor) -> torch.Tensor:
        """What is done to each sample."""
        return compute(sample, self.turns)


def _prepare(sizes: Sizes, _: Path) -> Computed:
    return Computed(sizes.computed, round(sizes.compute_s * _TURNS_PER_S), sizes.computed_batch)


def _prepare_for_workers(sizes: Sizes, folder: Path) -> Computed:
    return _prepare(replace(sizes, computed=sizes.computed_by_workers), folder)


def _in_main(wrap: Callable[[Computed], Any]) -> Callable[[Computed], Any]:
    return lambda source: DataLoader(wrap(source), **source.options)


_NOT_SLOWER = faster(0.97)


def _loaders(workers: int) -> tuple[Entry, Entry]:
    return (
        stock(lambda source: DataLoader(source, num_workers=workers, **source.options)),
        ours(
            "unstarve.DataLoader",
            lambda source: public("DataLoader")(source, num_workers=workers, **source.options),
            _NOT_SLOWER,
        ),
    )


COMPUTING = (
    PartPlan(
        "cpu-bound", "cpu-bound",
        lambda s: f"{s.computed} samples of {duration(s.compute_s, tick=True)} of Python, no worker",
        _prepare,
        (
            *_loaders(0),
            ours(
                "AsyncPrefetchDataset",
                _in_main(lambda source: public("AsyncPrefetchDataset")(source, num_workers=4)),
                _NOT_SLOWER,
            ),
            ours(
                "CachedDataset, transform",
                _in_main(lambda source: public("CachedDataset")(source.rows, transform=source.work)),
                _NOT_SLOWER,
            ),
        ),
        pairs=30,
    ),
    PartPlan(
        "cpu-bound", "cpu-bound-workers",
        lambda s: f"{s.computed_by_workers} samples of {duration(s.compute_s, tick=True)}, 2 workers",
        _prepare_for_workers, _loaders(2), pairs=6,  # with their start: without it a slower one would gain
    ),
)  # fmt: skip
