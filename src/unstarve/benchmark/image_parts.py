"""Part images: JPEG files, a random part of each, resized, flipped and normalized."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from unstarve.benchmark.bench_data import image_files
from unstarve.benchmark.bench_plan import BenchEntry, PartPlan, Sizes, faster, ours, public, stock
from unstarve.benchmark.optional_packages import torchvision
from unstarve.model import Bar, Kind, Promise

SIZE = 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_WORKERS = 2
_NEXT_TO_NOTHING = 8
"""Pixels to which a crop is resized if only its decoding matters."""


@dataclass(frozen=True)
class Images:
    """A folder per class, with JPEG files."""

    root: Path
    batch_size: int

    @property
    def options(self) -> dict[str, Any]:
        """Arguments for loaders."""
        return {"batch_size": self.batch_size, "shuffle": True, "num_workers": _WORKERS}

    def dataset(self, **options: Any) -> Any:
        """Our dataset, which does what stock's transforms do."""
        return public("ImageFolderDataset")(self.root, size=SIZE, mean=MEAN, std=STD, **options)


def _prepare(sizes: Sizes, folder: Path) -> Images:
    return Images(image_files(folder / "images", sizes.jpegs), sizes.jpeg_batch)


def _stock(images: Images) -> Any:
    vision = torchvision()
    steps = vision.transforms
    transform = steps.Compose(
        [
            steps.RandomResizedCrop(SIZE),
            steps.RandomHorizontalFlip(),
            steps.ToTensor(),
            steps.Normalize(MEAN, STD),
        ]
    )
    return DataLoader(vision.datasets.ImageFolder(str(images.root), transform), **images.options)


def _as_transform(loader: Any, images: Images) -> Any:
    transform = public("DecodeCrop")(SIZE, mean=MEAN, std=STD)
    dataset = torchvision().datasets.ImageFolder(str(images.root), transform, loader=str)
    return loader(dataset, **images.options)


def _kept(images: Images) -> Any:
    loader = public("DataLoader")(images.dataset(cache="ram"), **images.options)
    for _ in loader:  # the first epoch decodes
        pass
    return loader


class Decoding:
    """Random crops of all images, decoded and thrown away."""

    def __init__(self, images: Images) -> None:
        dataset = public("ImageFolderDataset")(images.root, size=_NEXT_TO_NOTHING, dtype=torch.uint8)
        self._loader = public("DataLoader")(dataset, **images.options)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)


def _ours(images: Images) -> Any:
    return public("DataLoader")(images.dataset(), **images.options)


def _without_workers(images: Images) -> Any:
    return public("DataLoader")(images.dataset(), **{**images.options, "num_workers": 0})


def _in_torchs(images: Images) -> Any:
    return DataLoader(images.dataset(), **images.options)


# The batches equal stock's up to the difference between two JPEG decoders, which the tests bound.
_like_stock = partial(ours, same_batches=False)

IMAGES = (
    PartPlan(
        "images", "images",
        lambda s: f"{s.jpegs} JPEGs of about 500×375, random crop to {SIZE}, 2 workers", _prepare,
        (
            stock(_stock, "DataLoader, PIL + torchvision"),
            _like_stock("ImageFolderDataset, torch's", _in_torchs),
            _like_stock(
                "ImageFolderDataset, ours",
                _ours,
                faster(3),
                Bar(Promise.OVER_LIMIT, 0.25),
                rival="ImageFolderDataset, torch's",
            ),
            _like_stock("the same, no workers", _without_workers, rival="ImageFolderDataset, ours"),
            _like_stock("DecodeCrop, torch's", partial(_as_transform, DataLoader), faster(1.8)),
            _like_stock(
                "DecodeCrop, ours",
                lambda images: _as_transform(public("DataLoader"), images),
                rival="DecodeCrop, torch's",
            ),
            _like_stock('cache="ram", ours', _kept, faster(12)),
            BenchEntry("decoding alone", Kind.LIMIT, Decoding),
        ),
        skip=4,
        batch_samples=lambda s: s.jpeg_batch,
    ),
)  # fmt: skip
