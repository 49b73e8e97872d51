"""A folder of images as a dataset that decodes only the pixels that the crop needs.

dataset = unstarve.ImageFolderDataset("train", size=224, mean=MEAN, std=STD)
loader = unstarve.DataLoader(dataset, batch_size=64, shuffle=True, num_workers=2)
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from torch.utils.data import Dataset, Subset

from unstarve.errors import ImageError, UsageError
from unstarve.fixes.datasets.images.crop_recipe import RATIO, SCALE, Crop, Decode, recipe_of
from unstarve.fixes.datasets.images.decoded_cache import DecodedCache, wishes_of
from unstarve.fixes.datasets.images.failed_images import FailedImages
from unstarve.fixes.datasets.images.gpu_decoder import (
    ask_for_queues,
    beside_training,
    describe_decoder,
)
from unstarve.fixes.datasets.images.image_batches import (
    ImageBatch,
    PendingFolderBatch,
    PendingImages,
    make_batch,
    make_one,
    with_path,
)
from unstarve.fixes.datasets.images.image_files import Image, get_all, read_images
from unstarve.fixes.datasets.images.torchvision_folder import arguments_of
from unstarve.fixes.io.reading import Names
from unstarve.fixes.memory.device_batches import use_on_this_stream
from unstarve.fixes.memory.store.cache_placement import OverBudget
from unstarve.fixes.samples.built_batch import Batched
from unstarve.fixes.samples.labels import Labels
from unstarve.fixes.samples.random_streams import generator_here

OnError = Literal["raise", "skip", "zeros"]

_SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class ImageFolderDataset(Dataset[Any]):
    """The images of a folder that has one folder per class, ready for training: (3×H×W tensor, class).

    The files, their order, `classes`, `class_to_idx`, `samples` and `targets` are those of torchvision's
    `ImageFolder`. `crop` replaces its transforms:

    "random_resized"
        `RandomResizedCrop(size, scale, ratio)`, then `RandomHorizontalFlip(flip)`; the same seed cuts the
        same boxes. `flip` is a probability, 0.5 by default.
    "center"
        `Resize(resize)`, then `CenterCrop(size)`; `resize` is 256/224 of the size by default.
    None
        the whole image, resized to `size` without keeping its proportions.

    `size` is a number of pixels, or (height, width). Resizing is bilinear with antialiasing, as in
    torchvision with PIL. `dtype` is torch.uint8 for values 0–255; or float32, float16 or bfloat16 for values
    0–1, or normalized by `mean` and `std`. `memory_format` may be torch.channels_last. Images with an
    orientation in EXIF or XMP are turned upright, which torchvision does not do; `exif=False` leaves them as
    they are stored.

    `cache` keeps decoded pixels after their first use: in "ram", one copy for all workers and ranks of the
    machine, within `budget`; or on "disk", in a file that the next run finds again. `budget`, `over_budget`,
    `cache_dir` and `key` are those of `CachedDataset`.

    `decode` says where images are decoded: "cpu"; "cuda", the current GPU, where the batches then are, too;
    or "auto", which times both on the first batch of 8 images or more and takes the GPU if it is twice as
    fast (the CPU if there is no GPU, and for fewer images); `decoder` says which and why. A GPU needs
    torchvision with CUDA, and a loader without worker processes.

    `on_error` says what happens to an image that cannot be decoded: "raise" raises an ImageError that names
    the file; "skip" leaves the image out, so that its batch is shorter; "zeros" replaces it by zeros.
    `failed` lists the files that any worker left out or zeroed. A file that cannot be read always raises.

    Raises UsageError for wrong arguments, FileNotFoundError for a folder without images, and
    CacheTooLargeError if the decoded images do not fit into the budget.
    """

    releases_gil = True

    def __init__(
        self,
        root: str | Path,
        size: int | Sequence[int] = 224,
        crop: Crop = "random_resized",
        *,
        scale: Sequence[float] = SCALE,
        ratio: Sequence[float] = RATIO,
        flip: float | None = None,
        resize: int | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        dtype: torch.dtype = torch.float32,
        memory_format: torch.memory_format = torch.contiguous_format,
        exif: bool = True,
        decode: Decode = "cpu",
        cache: Literal["ram", "disk"] | None = None,
        budget: str | int | None = None,
        over_budget: OverBudget = "error",
        cache_dir: str | Path | None = None,
        key: str | None = None,
        on_error: OnError = "raise",
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        if on_error not in ("raise", "skip", "zeros"):
            raise UsageError(f'on_error must be "raise", "skip" or "zeros", got {on_error!r}')
        self._recipe = recipe_of(
            size, crop, scale, ratio, flip, resize, mean, std, dtype, memory_format, exif=exif, decode=decode
        )
        if decode != "cpu":
            ask_for_queues()
        if cache is not None and decode != "cpu":
            raise UsageError(
                f"cache keeps images that the CPU has decoded: leave out cache, or decode={decode!r}"
            )
        wishes = None if cache is None else wishes_of(cache, budget, over_budget, cache_dir)
        found = find_images(root, is_valid_file, allow_empty=allow_empty)
        self.root = root
        self.classes = found.classes
        self.class_to_idx = {name: number for number, name in enumerate(found.classes)}
        self.on_error = on_error
        self._names = Names(found.paths)
        self._labels = Labels(found.targets, len(found.paths))
        self._failed = None if on_error == "raise" else FailedImages(len(found.paths))
        self._cache = None
        if wishes is not None and found.paths:
            self._cache = DecodedCache(self._names, wishes, key, upright=exif)

    @overload
    @classmethod
    def like(cls, dataset: Subset[Any], **options: Any) -> Subset[Any]: ...

    @overload
    @classmethod
    def like(cls, dataset: Any, **options: Any) -> ImageFolderDataset: ...

    @classmethod
    def like(cls, dataset: Any, **options: Any) -> Any:
        """Return a dataset with the samples of a torchvision `ImageFolder` and its transforms.

        For a `Subset` of an `ImageFolder` it is a `Subset`. `options` override the arguments that the
        transforms imply; images are not turned upright (`exif=False`), because torchvision does not do so.

        Raises UsageError for an unknown transform, and if the dataset's samples are not those of its folder:
        `is_valid_file` has to be given again.
        """
        if type(dataset) is Subset:
            return Subset(cls.like(dataset.dataset, **options), dataset.indices)
        made = cls(**(arguments_of(dataset) | options))
        if made.samples != list(dataset.samples):
            raise UsageError(
                f"its samples are not those of the folder {dataset.root}: give its is_valid_file again, or"
                " use a Subset instead of changing its samples"
            )
        return made

    def __len__(self) -> int:
        return len(self._names.starts)

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers."""
        return self._recipe.draws

    @property
    def decoder(self) -> str:
        """Where images are decoded, and why: "cuda: 12,300 images/s, 3,900 on the CPU"."""
        return describe_decoder(self._recipe)

    @property
    def samples(self) -> list[tuple[str, int]]:
        """File and class number of every image; a new list on every call."""
        return [(self._path(at), target) for at, target in enumerate(self.targets)]

    imgs = samples

    @property
    def targets(self) -> list[int]:
        """The class number of every image; a new list on every call."""
        targets: list[int] = self._targets_of([*range(len(self))]).tolist() if len(self) else []
        return targets

    @property
    def failed(self) -> list[str]:
        """The files of images that any worker has skipped or zeroed so far."""
        return [] if self._failed is None else [self._path(at) for at in self._failed.indices()]

    def __getitem__(self, index: Any) -> Any:
        """Return an image and its class; for a slice, a `Subset`.

        An image that cannot be decoded raises even with on_error="skip": a single sample cannot be left out.
        """
        if isinstance(index, slice):
            return Subset(self, range(*index.indices(len(self))))
        at = self._position(index)
        images, _ = self._without_bad(make_one(self._images([at])[0], self._recipe), [at])
        return images[0], self._labels.one(at)

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Any]:
        """Return the samples as a batch that torch's own collate passes through."""
        positions = [self._position(index) for index in indices]
        images, kept = self._without_bad(make_batch(self._images(positions), self._recipe), positions)
        labels = self._labels

        def sample(at: int) -> Any:
            return images[at], labels.one(kept[at])

        return Batched([images, self._targets_of(kept)], len(kept), sample)

    def read_batch(self, indices: Sequence[int]) -> Any:
        """Return the batch that default_collate would make of the samples. Thread-safe."""
        pending = self.load_batch(indices)
        pending.draw(generator_here())
        return pending.make()

    def load_batch(self, indices: Sequence[int]) -> Any:
        """Read the files of a batch, which is then made in two steps. Thread-safe."""
        positions = [self._position(index) for index in indices]
        return PendingFolderBatch(
            PendingImages(self._images(positions), self._recipe),
            lambda made: self._labelled(self._without_bad(made, positions)),
        )

    def __repr__(self) -> str:
        what = f"{len(self):,} images of {len(self.classes)} classes"
        cached = "" if self._cache is None else f"; decoded: {self._cache.where()}"
        decoder = "" if self._recipe.decode == "cpu" else f"; decode={self.decoder}"
        return f"ImageFolderDataset({str(self.root)!r}, {what}{cached}{decoder})"

    def _without_bad(self, made: ImageBatch, positions: list[int]) -> tuple[torch.Tensor, list[int]]:
        bad = {at: error for at, error in enumerate(made.errors) if error is not None}
        if not bad:
            return made.batch, positions
        first, error = next(iter(bad.items()))
        if self._failed is None:
            raise with_path(error, self._path(positions[first])) from error
        for at, error in bad.items():
            consequence = "zeros replace it" if self.on_error == "zeros" else "it is left out"
            self._failed.mark(positions[at], str(with_path(error, self._path(positions[at]))), consequence)
        if self.on_error == "zeros":
            with beside_training(made.batch.device):
                made.batch[list(bad)] = 0
            return made.batch, positions
        good = [at for at in range(len(positions)) if at not in bad]
        if not good:
            raise ImageError(
                f"none of the {len(positions)} images of a batch can be decoded, and a loader cannot skip a"
                f' batch: use larger batches or on_error="zeros"; the first is {self._path(positions[first])}'
            ) from error
        with beside_training(made.batch.device):
            kept = made.batch[good]
        use_on_this_stream(kept)
        if kept.is_cpu:
            kept = self._recipe.empty(len(good)).copy_(kept)
        return kept, [positions[at] for at in good]

    def _labelled(self, made: tuple[torch.Tensor, list[int]]) -> Any:
        images, kept = made
        return [images, self._targets_of(kept)]

    def _images(self, positions: list[int]) -> list[Image]:
        cache = self._cache
        if cache is None:
            return read_images(self._names, self._names.starts[positions])

        def pixels(position: int) -> Image:
            try:
                return cache.get(position)
            except ImageError as error:
                return error

        return get_all(pixels, positions, lambda at: not cache.has(at))

    def _targets_of(self, positions: list[int]) -> Any:
        return self._labels.many(np.array(positions, np.int64))

    def _path(self, position: int) -> str:
        return self._names.at(int(self._names.starts[position]))

    def _position(self, index: Any) -> int:
        at, count = operator.index(index), len(self)
        if not -count <= at < count:
            raise IndexError(f"index {at} is out of range for {count} images")
        return at % count


@dataclass(frozen=True)
class ClassFolders:
    """The images in a folder of class folders; `targets` are class numbers, one per path."""

    classes: list[str]
    paths: list[str]
    targets: list[int]


def find_images(
    root: str | Path, is_valid_file: Callable[[str], bool] | None = None, *, allow_empty: bool = False
) -> ClassFolders:
    """Find classes and images as torchvision's `ImageFolder` does. Paths begin with `root` as given.

    A file is an image by its suffix, or by its path if there is an `is_valid_file`. Raises FileNotFoundError
    like torchvision, if there is no class, or, without `allow_empty`, if a class has no image.
    """
    root = os.path.expanduser(root)  # noqa: PTH111  # a Path would lose "./", which torchvision keeps
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {root}.")
    counts = is_valid_file or _has_suffix
    paths: list[str] = []
    targets: list[int] = []
    empty = []
    for number, name in enumerate(classes):
        found = [path for path in _files_below(os.path.join(root, name)) if counts(path)]  # noqa: PTH118  # as above
        paths += found
        targets += [number] * len(found)
        if not found:
            empty.append(name)
    if empty and not allow_empty:
        supported = f"Supported extensions are: {', '.join(_SUFFIXES)}" if is_valid_file is None else ""
        raise FileNotFoundError(f"Found no valid file for the classes {', '.join(empty)}. {supported}")
    return ClassFolders(classes, paths, targets)


def _has_suffix(path: str) -> bool:
    return path.lower().endswith(_SUFFIXES)


def _files_below(folder: str) -> list[str]:
    """Return the files of all folders below, ordered by folder, then by name."""
    found = sorted(os.walk(folder, followlinks=True))
    return [os.path.join(at, name) for at, _, names in found for name in sorted(names)]  # noqa: PTH118  # a million of them
