"""Trainings that are interrupted, and what "resumed exactly" means: batches, order, and training's draws."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from same_batches import assert_same, cloned

COUNT = 23
EPOCHS = 3
Make = Callable[[], Any]


class AnyEngine(Dataset[Any]):
    """Samples (row i, i) that every engine can give."""

    rows_are_samples = True
    releases_gil = True

    def __init__(self, count: int = COUNT) -> None:
        self.table = (torch.arange(count * 3.0).reshape(count, 3), torch.arange(count))

    def rows(self) -> Any:
        return self.table

    def __len__(self) -> int:
        return len(self.table[0])

    def __getitem__(self, index: int) -> Any:
        return self.table[0][index], self.table[1][index]

    def read_batch(self, indices: Sequence[int]) -> Any:
        return [column[torch.as_tensor(np.asarray(indices))] for column in self.table]


@dataclass(frozen=True)
class Stop:
    """Where a training is interrupted: in an epoch, after so many batches of it (None: after its end)."""

    epoch: int
    given: int | None

    def __str__(self) -> str:
        return f"epoch {self.epoch}, " + ("ended" if self.given is None else f"{self.given} given")


def train(loader: Any, epochs: int, stop: Stop | None = None) -> tuple[list[list[Any]], Any]:
    """Train; return the batches of each epoch, with the number that training drew after each, and the state.

    Without a `stop` there is no state.
    """
    seen: list[list[Any]] = []
    for epoch in range(epochs):
        seen.append([])
        if stop == Stop(epoch, 0):
            iterator = iter(loader)
            state = loader.state_dict()
            del iterator
            return seen, state
        for given, batch in enumerate(loader, 1):
            seen[-1].append((cloned(batch), torch.rand(()).item()))
            if stop == Stop(epoch, given):
                return seen, loader.state_dict()
        if stop == Stop(epoch, None):
            return seen, loader.state_dict()
    assert stop is None, "the training was over before it could be interrupted"
    return seen, None


def through_a_checkpoint(state: Any) -> Any:
    """Save and load the state as a training script does."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file)  # weights only: nothing but plain values


def disturb(seed: int = 99) -> None:
    """Another process starts with other random numbers."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def assert_resumes(make: Make, stop: Stop, make_other: Make | None = None, *, epochs: int = EPOCHS) -> Any:
    """An interrupted training, resumed by another loader if given, sees what it would have seen."""
    disturb(11)
    whole, _ = train(make(), epochs)
    disturb(11)
    before, state = train(make(), epochs, stop)
    state = through_a_checkpoint(state)
    disturb()
    loader = (make_other or make)()
    loader.load_state_dict(state)
    ended = stop.given is None
    after, _ = train(loader, epochs - len(before) + (0 if ended else 1))
    resumed = [*before, *after] if ended else [*before[:-1], before[-1] + after[0], *after[1:]]
    assert_same(resumed, whole)
    return loader
