"""The data of the lab on faster parts.

Every sample depends on the seed, its index and, where it is augmented, the epoch; never on how it was loaded.
"""

from __future__ import annotations

import random
from pathlib import Path
from time import sleep  # this one, whatever a learner's file makes of the module
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, TensorDataset

from unstarve.labs.parts_draw import Kind, kinds_of
from unstarve.labs.started import started_in

SIDE = 64
_DECODE_ROUNDS = 25
_LATENCY_S = 0.006
_EPOCH = torch.zeros(1, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]  # torch's
"""Seen by workers, too, however they were started: datasets that need it hold it."""


def kind_in(folder: Path | str, slot: str) -> Kind:
    """The kind of a slot of the lab in this folder."""
    return kinds_of(started_in(Path(folder)).seed)[slot]


def set_epoch(epoch: int) -> None:
    """Begin an epoch: augmentation is another from now on."""
    _EPOCH[0] = epoch


def dataset_in(folder: Path | str, slot: str) -> Dataset[Any]:
    """The dataset of a slot of the lab in this folder."""
    folder = Path(folder)
    seed, kind = started_in(folder).seed, kind_in(folder, slot)
    match kind.name:
        case "decoded":
            return Decoded(seed, kind.samples)
        case "augmented":
            return Augmented(seed, kind.samples)
        case "rows":
            generator = torch.Generator().manual_seed(seed)
            return TensorDataset(torch.rand(kind.samples, 32, generator=generator))
        case "server":
            return Server(seed, kind.samples)
    return TensorFiles(seed, kind.samples, folder / "data" / str(seed))


class Decoded(Dataset[torch.Tensor]):
    """Images that take a while to decode, and never change."""

    def __init__(self, seed: int, samples: int) -> None:
        self._seed, self._samples = seed, samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(_decoded(_image(self._seed, index)))


class NumberedImages(Dataset[tuple[torch.Tensor, int]]):
    """The same with the index, which augmentation needs."""

    def __init__(self, images: Decoded) -> None:
        self._images = images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self._images[index], index


class Augmented(Dataset[torch.Tensor]):
    """Images that take a while to decode, and are shifted at random in each epoch."""

    def __init__(self, seed: int, samples: int) -> None:
        self.images = NumberedImages(Decoded(seed, samples))
        self._seed = seed
        self._epoch = _EPOCH

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.augment(self.images[index])

    def augment(self, numbered: tuple[torch.Tensor, int]) -> torch.Tensor:
        """Shift an image, in each epoch by another distance."""
        image, index = numbered
        draw = random.Random(f"{self._seed}:{int(self._epoch)}:{index}")
        return image.roll((draw.randrange(SIDE), draw.randrange(SIDE)), (0, 1))


class Server(Dataset[torch.Tensor]):
    """Samples that take their time to arrive; each is needed once."""

    def __init__(self, seed: int, samples: int) -> None:
        self._seed, self._samples = seed, samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> torch.Tensor:
        sleep(_LATENCY_S)
        return torch.from_numpy(_image(self._seed, index))


class TensorFiles(Dataset[torch.Tensor]):
    """One tensor a file, many files; each is needed once."""

    def __init__(self, seed: int, samples: int, folder: Path) -> None:
        self.paths = [folder / f"{index:05}.pt" for index in range(samples)]
        folder.mkdir(parents=True, exist_ok=True)
        for index, path in enumerate(self.paths):
            if not path.exists():
                torch.save(torch.from_numpy(_image(seed, index)), path)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        sample: torch.Tensor = torch.load(self.paths[index], weights_only=True)
        return sample


def _image(seed: int, index: int) -> np.ndarray:
    return np.random.default_rng((seed, index)).random((SIDE, SIDE), dtype=np.float32)


def _decoded(image: np.ndarray) -> np.ndarray:
    """Real work whose result does not depend on how it is done."""
    for _ in range(_DECODE_ROUNDS):
        image = np.fft.irfft2(np.fft.rfft2(image), image.shape).astype(np.float32)
    return image
