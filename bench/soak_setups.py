"""The loaders of `soak.py`: every engine and every dataset, with the samples to check batches against."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

import unstarve

SAMPLES = 48
BATCH = 8
_WIDTH = 500


@dataclass(frozen=True)
class Setup:
    """One row of the table. `make(folder)` returns a loader of ``[x, index]`` batches."""

    name: str
    make: Callable[[Path], Any]
    truth: Callable[[], torch.Tensor]
    """Row i is sample i."""
    writes: bool = False
    """Creates files for each epoch, on a disk that may be full."""
    persistent: bool = False
    """Its workers stay from epoch to epoch."""
    torchs: bool = False
    """torch's own workers, for comparison: growth is shown, but is not a failure."""
    recorded: bool = False
    """Runs under `unstarve run`."""


def values() -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.rand(SAMPLES, _WIDTH, generator=generator)


class Rows(Dataset[Any]):
    """Samples that Python makes one by one; each takes `wait_s`."""

    def __init__(self, wait_s: float = 0.0) -> None:
        self._values, self._wait_s = values(), wait_s

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(self._wait_s)
        return self._values[index].clone(), index


def setups() -> dict[str, Setup]:
    """All of them, by name."""
    numbers = torch.arange(SAMPLES)
    loader = unstarve.DataLoader
    workers: dict[str, Any] = {"batch_size": BATCH, "shuffle": True, "num_workers": 2}
    shuffled: dict[str, Any] = {"batch_size": BATCH, "shuffle": True}
    all_of_them = (
        Setup("views", lambda f: loader(TensorDataset(values(), numbers), BATCH), values),
        Setup("gather", lambda f: loader(TensorDataset(values(), numbers), **shuffled), values),
        Setup(
            "gather, CachedDataset",
            lambda f: loader(unstarve.CachedDataset(Rows(), progress=False), **shuffled),
            values,
        ),
        Setup("gather, CachedDataset in a file", _cached_in_file, values, writes=True),
        Setup(
            "threads, TensorFileDataset",
            lambda f: loader(unstarve.TensorFileDataset(_tensor_files(f)), **shuffled),
            values,
        ),
        Setup(
            "threads, PackedDataset",
            lambda f: loader(unstarve.PackedDataset(_packed(f), read="pread"), **shuffled),
            values,
        ),
        Setup("gather, packed in each epoch", _packed_anew, values, writes=True),
        Setup(
            "threads, ImageFolderDataset",
            lambda f: loader(_images(f), **shuffled),
            _pixels,
        ),
        Setup("ring", lambda f: loader(Rows(), engine="ring", **workers), values),
        Setup(
            "ring, persistent workers",
            lambda f: loader(Rows(), engine="ring", persistent_workers=True, **workers),
            values,
            persistent=True,
        ),
        Setup("stock", lambda f: loader(Rows(), engine="stock", **workers), values, torchs=True),
        Setup(
            "stock, AsyncPrefetchDataset",
            lambda f: loader(unstarve.AsyncPrefetchDataset(Rows(1e-4)), engine="stock", **shuffled),
            values,
        ),
        Setup("ring, recorded", lambda f: loader(Rows(), engine="ring", **workers), values, recorded=True),
    )
    return {setup.name: setup for setup in all_of_them}


def _tensor_files(folder: Path) -> list[str]:
    files = [folder / f"{i}.pt" for i in range(SAMPLES)]
    for i, file in enumerate(files):
        if not file.exists():
            torch.save((values()[i], i), file)
    return [str(file) for file in files]


def _packed(folder: Path) -> Path:
    file = folder / "rows.packed"
    if not file.exists():
        with unstarve.PackedWriter(file) as writer:
            for sample in map(Rows().__getitem__, range(SAMPLES)):
                writer.append(sample)
    return file


def _packed_anew(folder: Path) -> Any:
    (folder / "rows.packed").unlink(missing_ok=True)
    return unstarve.DataLoader(unstarve.PackedDataset(_packed(folder)), BATCH, shuffle=True)


def _cached_in_file(folder: Path) -> Any:
    shutil.rmtree(folder / "cache", ignore_errors=True)
    cached = unstarve.CachedDataset(
        Rows(), budget=0, over_budget="disk", cache_dir=folder / "cache", progress=False
    )
    return unstarve.DataLoader(cached, BATCH, shuffle=True)


def _images(folder: Path) -> Any:
    """A class for each image, so that the label is the sample's number."""
    for i in range(SAMPLES):
        home = folder / "images" / f"{i:03}"
        if not home.exists():
            home.mkdir(parents=True)
            Image.fromarray(_noise(i).numpy()).save(home / "image.jpg")
    return unstarve.ImageFolderDataset(folder / "images", 16, None, flip=0, dtype=torch.uint8)


def _noise(number: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(number)
    return torch.randint(0, 255, (24, 24, 3), generator=generator, dtype=torch.uint8)


@cache
def _pixels() -> torch.Tensor:
    """Return the pixels of the images, read once and in order."""
    with tempfile.TemporaryDirectory() as folder:
        images = _images(Path(folder))
        return torch.stack([images[i][0] for i in range(SAMPLES)])
