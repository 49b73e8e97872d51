"""Samples that come at once, and indices that are slow to draw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Sampler, WeightedRandomSampler

from zoo.case import Case
from zoo.data import Fixed, Items, fit
from zoo.truth import Truth
from zoo.work import Model, burn


class SlowSampler(Sampler[int]):
    """Searches for a long time for every index."""

    def __init__(self, count: int, cpu_ms: float) -> None:
        self.count = count
        self.cpu_ms = cpu_ms

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        for index in range(self.count):
            burn(self.cpu_ms)
            yield index


class WeightedBatches(Sampler[list[int]]):
    """Draws every batch from the weights of millions of samples."""

    def __init__(self, batches: int, weights: int) -> None:
        self.batches = batches
        self.weights = np.random.default_rng(0).random(weights)

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[list[int]]:
        draw = np.random.default_rng(1)
        for _ in range(self.batches):
            sums = np.cumsum(self.weights)
            places = draw.random(8) * sums[-1]
            yield np.searchsorted(sums, places).tolist()


class SortedBatches(Sampler[list[int]]):
    """Plans all batches of an epoch at once, by the length of their samples."""

    def __init__(self, lengths: int, batches: int) -> None:
        self.lengths = np.random.default_rng(0).integers(5, 500, lengths).tolist()
        self.batches = batches

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[list[int]]:
        order = sorted(range(len(self.lengths)), key=self.lengths.__getitem__)
        planned = [order[at : at + 8] for at in range(0, len(order), 8)]
        return iter(planned[: self.batches])


def custom(truth: Truth) -> None:
    """In the training process."""
    data = Items(560, Fixed())
    fit(truth, DataLoader(data, batch_size=8, sampler=SlowSampler(560, cpu_ms=3)), Model(10))


def weighted_batches(truth: Truth) -> None:
    """Two idle workers that wait for indices."""
    data = Items(6_000_000, Fixed())
    fit(truth, DataLoader(data, batch_sampler=WeightedBatches(80, len(data)), num_workers=2), Model(8))


def weighted_epochs(truth: Truth) -> None:
    """torch's own weighted sampler draws a million indices at once, for epochs of 10 steps."""
    weights = torch.rand(1_000_000).tolist()
    sampler = WeightedRandomSampler(weights, num_samples=len(weights))
    loader = DataLoader(Items(len(weights), Fixed()), batch_size=8, sampler=sampler)
    fit(truth, loader, Model(6), epochs=8, epoch_steps=10)


def planned_epochs(truth: Truth) -> None:
    """Persistent workers whose first batches are drawn in ``iter()``, slowly."""
    loader = DataLoader(
        Items(96, Fixed()),
        batch_size=8,
        sampler=SlowSampler(96, cpu_ms=3),
        num_workers=2,
        prefetch_factor=6,
        persistent_workers=True,
    )
    fit(truth, loader, Model(8), epochs=7)


def sorted_batches(truth: Truth, **options: Any) -> None:
    """Workers that stand ready while the epoch is planned."""
    data = Items(300_000, Fixed())
    sampler = SortedBatches(len(data), batches=10)
    fit(truth, DataLoader(data, batch_sampler=sampler, num_workers=2, **options), Model(6), epochs=7)


CASES = (
    Case("sampler-custom", custom, "starved", "sampler"),
    Case("sampler-weighted-batches", weighted_batches, "starved", "sampler", quick=True),
    Case("sampler-weighted-epochs", weighted_epochs, "starved", "sampler"),
    Case("sampler-planned-epochs", planned_epochs, "starved", "sampler"),
    Case("sampler-sorted-batches", sorted_batches, "starved", "sampler"),
    Case("sampler-sorted-persistent", sorted_batches, "starved", "sampler", {"persistent_workers": True}),
)
