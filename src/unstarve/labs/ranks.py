"""What two ranks train on in the lab of many ranks, and the fault that was drawn: how samples reach them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from time import sleep  # this one, whatever a learner's file makes of the module

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from unstarve.labs.started import started_in
from unstarve.labs.workload import Workload

RANKS = 2
SAMPLES = 256
_QUICK_S = 0.0003
_SLOW_S = 0.004
_LARGER_PART = 9 / 16
"""Of the samples, where ranks do not have equally many: 18 batches of 8 against 14."""


class RankData:
    """Samples that a server sends, some of them later than others."""

    def __init__(self, folder: Path | str) -> None:
        self._workload = Workload(folder, SAMPLES)
        self.samples = self._workload.samples
        self._latencies_s = latencies(Path(folder), self.samples)

    def sample(self, index: int) -> torch.Tensor:
        """One sample, always the same for an index."""
        sleep(self._latencies_s[index])
        return self._workload.sample(index)


class LabSampler(DistributedSampler[int]):
    """Gives a rank its indices, with the fault that was drawn."""

    def __init__(self, dataset: Dataset[torch.Tensor], folder: Path | str) -> None:
        fault = _fault(Path(folder))
        super().__init__(dataset, shuffle=fault != "straggler")
        self._is_uneven = fault == "uneven-ranks"
        if fault == "ranks-not-split":
            self.num_replicas, self.rank, self.num_samples = 1, 0, self.total_size
        self.counts_epochs = fault != "set-epoch-missed"

    def __iter__(self) -> Iterator[int]:
        if not self._is_uneven:
            return super().__iter__()
        order = list(range(self.total_size))
        random.Random(self.epoch).shuffle(order)
        border = round(self.total_size * _LARGER_PART)
        return iter(order[border:] if self.rank else order[:border])

    def __len__(self) -> int:
        if not self._is_uneven:
            return super().__len__()
        larger = round(self.total_size * _LARGER_PART)
        return self.total_size - larger if self.rank else larger


def begin_lab_epoch(loader: DataLoader[torch.Tensor], epoch: int) -> None:
    """What the training does at the beginning of an epoch, with the fault that was drawn."""
    sampler = loader.sampler
    if isinstance(sampler, LabSampler) and sampler.counts_epochs:
        sampler.set_epoch(epoch)


def latencies(folder: Path, samples: int) -> list[float]:
    """Seconds that the server takes for each sample."""
    slow = slow_rank(folder)
    if slow is None:
        return [_QUICK_S] * samples
    return [_SLOW_S if index % RANKS == slow else _QUICK_S for index in range(samples)]


def slow_rank(folder: Path) -> int | None:
    """The rank that gets the slow samples; None where there is none."""
    started = started_in(folder)
    return started.seed % RANKS if _fault(folder) == "straggler" else None


def _fault(folder: Path) -> str:
    started = started_in(folder)
    fault = started.lab.fault(started.seed)
    return "" if fault is None else fault.name
