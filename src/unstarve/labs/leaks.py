"""What the training of the memory lab holds on to. Which of the parts holds too much was drawn.

Each part is useful and each grows at first: the history by a number a step, the recent batches until there
are two, the cache until it has every sample. One of them, or none, never stops.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset

from unstarve.labs.started import started_in

SAMPLES = 256
BATCH = 16
RECENT = 2
_HIDDEN = 64

decoded = torch.zeros((), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]  # torch
"""Samples that this process and its forked workers have decoded."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What the seed decides."""

    seed: int
    leak: str
    """``losses``, ``batches``, ``cache`` or ``none``."""
    features: int
    """Numbers of a sample."""
    wide: int
    """Width of the model's widest layer."""
    limit_bytes: int
    """Memory into which a batch has to fit, for the question about the batch size."""

    @property
    def kept_bytes(self) -> int:
        """What the leak keeps of every step."""
        numbers = {
            "losses": self.features + _HIDDEN + self.wide,  # the inputs that the backward pass would need
            "batches": self.features,
            "cache": self.features,
            "none": 0,
        }
        return 4 * BATCH * numbers[self.leak]


def drawn(folder: Path | str) -> Drawn:
    """The draw of the lab in this folder."""
    started = started_in(Path(folder))
    fault = started.lab.fault(started.seed)
    chance = random.Random(f"memory:{started.seed}")
    return Drawn(
        started.seed,
        "none" if fault is None else fault.name,
        features=1024 * chance.choice((16, 20, 24, 28)),
        wide=1024 * chance.choice((16, 20, 24, 28)),
        limit_bytes=chance.choice((300, 400, 500, 600)) * 1_000_000,
    )


def device() -> torch.device:
    """The GPU, if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def make_model(folder: Path | str) -> torch.nn.Module:
    """A model with one wide layer."""
    draw = drawn(folder)
    return torch.nn.Sequential(
        torch.nn.Linear(draw.features, _HIDDEN),
        torch.nn.ReLU(),
        torch.nn.Linear(_HIDDEN, draw.wide),
        torch.nn.ReLU(),
        torch.nn.Linear(draw.wide, 1),
    )


def make_batch(folder: Path | str, count: int) -> torch.Tensor:
    """A batch of any number of samples, for the question about the batch size."""
    return torch.ones(count, drawn(folder).features)


class SampleDataset(Dataset[torch.Tensor]):
    """Samples that are decoded anew each time they are asked for."""

    def __init__(self, folder: Path | str) -> None:
        self._draw = drawn(folder)

    def __len__(self) -> int:
        """How many samples there are."""
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        """Decode one sample."""
        return torch.from_numpy(self._decode(index))

    def _decode(self, index: int) -> np.ndarray:
        decoded.add_(1)
        chance = np.random.default_rng((self._draw.seed, index))
        return chance.random(self._draw.features, dtype=np.float32)


class CachingDataset(SampleDataset):
    """The same samples, each decoded once: a suspect."""

    def __init__(self, folder: Path | str) -> None:
        super().__init__(folder)
        self._cache: dict[object, np.ndarray] = {}
        self._asked = 0

    def __getitem__(self, index: int) -> torch.Tensor:
        """Take a sample from the cache, or decode it."""
        if index not in self._cache:
            self._cache[index] = self._decode(index)
        if self._draw.leak == "cache":  # a copy under a key that never comes back
            self._asked += 1
            self._cache[index, self._asked] = self._cache[index].copy()
        return torch.from_numpy(self._cache[index])


class LossHistory:
    """The loss of every step: a suspect."""

    def __init__(self, folder: Path | str) -> None:
        self._keeps_graphs = drawn(folder).leak == "losses"
        self._losses: list[torch.Tensor | float] = []

    def add(self, loss: torch.Tensor | float) -> None:
        """Remember a loss."""
        if isinstance(loss, torch.Tensor) and not self._keeps_graphs:
            loss = loss.item()
        self._losses.append(loss)

    def __iter__(self) -> Iterator[torch.Tensor | float]:
        """All losses, first to last."""
        return iter(self._losses)


class RecentBatches:
    """The last two batches: a suspect."""

    def __init__(self, folder: Path | str) -> None:
        self._forgets = drawn(folder).leak != "batches"
        self._batches: list[torch.Tensor] = []

    def add(self, batch: torch.Tensor) -> None:
        """Remember a batch."""
        self._batches.append(batch)
        if self._forgets:
            del self._batches[:-RECENT]

    def __iter__(self) -> Iterator[torch.Tensor]:
        """The last two, the latest at the end."""
        return iter(self._batches[-RECENT:])
