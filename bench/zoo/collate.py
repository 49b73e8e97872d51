"""Samples that come at once, and batches that are slow to build."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader

from zoo.case import Case
from zoo.data import Fixed, Items, SlowCollate, Stream, fit
from zoo.truth import Truth
from zoo.work import Device, Model, augment, burn


def python(truth: Truth) -> None:
    """In the training process, in plain Python."""
    loader = DataLoader(Items(560, Fixed()), batch_size=8, collate_fn=SlowCollate(30))
    fit(truth, loader, Model(10))


def pad(samples: list[torch.Tensor]) -> torch.Tensor:
    """Rows of different lengths, filled up value by value."""
    padded = torch.zeros(len(samples), 64)

    def fill() -> None:
        for row, sample in zip(padded, samples, strict=True):
            row[: len(sample)] = sample

    burn(35, fill)
    return padded


def padding(truth: Truth) -> None:
    """In one worker, many small tensor operations."""
    loader = DataLoader(Items(560, Fixed()), batch_size=8, num_workers=1, collate_fn=pad)
    fit(truth, loader, Device(10))


def mixing(truth: Truth) -> None:
    """Batches of a stream mixed in NumPy by a spawned worker."""
    loader = DataLoader(
        Stream(560, Fixed()),
        batch_size=8,
        num_workers=1,
        multiprocessing_context="spawn",
        collate_fn=SlowCollate(32, augment),
    )
    fit(truth, loader, Device(10))


CASES = (
    Case("collate-python", python, "starved", "collate", quick=True),
    Case("collate-padding", padding, "starved", "collate"),
    Case("collate-spawned-stream", mixing, "starved", "collate"),
)
