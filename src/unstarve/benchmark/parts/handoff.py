"""Parts f and g: what it costs to get a finished batch out of a worker process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from unstarve.benchmark.entries import PartPlan, faster, ours, public, stock
from unstarve.benchmark.plan import Sizes

Sample = dict[str, torch.Tensor]
_SAMPLES = 4
"""In a batch: few, so that making it is a copy and little else."""

_OPTIONS: dict[str, Any] = {"batch_size": _SAMPLES, "num_workers": 1}


class Ready(Dataset[Sample]):
    """Gives the same sample again and again, at no cost.

    Each batch is collated anew: a batch that was handed over once lies in shared memory already, and torch
    would hand it over for nothing.
    """

    def __init__(self, sample: Sample, batches: int) -> None:
        self.sample = sample
        self.count = batches * _SAMPLES

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Sample:
        return self.sample


def _of_size(size_bytes: int, share: float) -> Callable[[Sizes, Path], Ready]:
    """Batches of this size; `share` of the number that the sizes say."""

    def prepare(sizes: Sizes, _: Path) -> Ready:
        sample = {"image": torch.zeros(size_bytes // 4 // _SAMPLES), "label": torch.tensor(1)}
        return Ready(sample, max(10, round(sizes.handed_over * share)))

    return prepare


def _small_tensors(sizes: Sizes, _: Path) -> Ready:
    return Ready({f"column {n}": torch.zeros(16) for n in range(150)}, sizes.handed_over)


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
