"""Batches that are made at once and are slow to get from the worker to the training process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from zoo.case import Case
from zoo.data import Items, Stream, fit
from zoo.truth import Truth
from zoo.work import Device, Model


@dataclass(frozen=True)
class Ready:
    """An array that lies ready in the worker."""

    array: np.ndarray[Any, Any]

    def __call__(self, index: int) -> np.ndarray[Any, Any]:
        return self.array


@dataclass(frozen=True)
class Fields:
    """A sample of many small tensors."""

    count: int

    def __call__(self, index: int) -> dict[str, torch.Tensor]:
        return {f"field {number}": torch.full((16,), float(index)) for number in range(self.count)}


def as_it_is(samples: list[Any]) -> list[Any]:
    """No batch is built: the list goes through the pipe."""
    return samples


def arrays(truth: Truth) -> None:
    """64 MB of NumPy arrays a batch, pickled through a pipe."""
    data = Items(280, Ready(np.zeros(4 << 20, dtype=np.float32)))
    fit(truth, DataLoader(data, batch_size=4, num_workers=1, collate_fn=as_it_is), Device(10))


def large_tensors(truth: Truth) -> None:
    """48 MB a batch that the dataset has ready, copied into fresh shared memory."""
    data = Stream(70, Ready(np.zeros(12 << 20, dtype=np.float32)))
    fit(truth, DataLoader(data, batch_size=None, num_workers=1), Device(2))


def many_tensors(truth: Truth) -> None:
    """150 small tensors a batch, each with a descriptor of its own."""
    data = Items(70, Fields(150))
    fit(truth, DataLoader(data, batch_size=None, num_workers=1), Model(8))


CASES = (
    Case("handoff-arrays", arrays, "starved", "handoff", quick=True),
    Case("handoff-large-tensors", large_tensors, "starved", "handoff"),
    Case("handoff-many-tensors", many_tensors, "starved", "handoff"),
)
