"""`DecodeCrop`: what `ImageFolderDataset` does to an image, for people who keep their own dataset."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import get_worker_info
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

from unstarve.errors import ImageError, UsageError
from unstarve.fixes.datasets.images.crop_recipe import RATIO, SCALE, Crop, recipe_of
from unstarve.fixes.datasets.images.image_batches import (
    Image,
    ImageBatch,
    make_batch,
    make_one,
    read_bytes,
    with_path,
)
from unstarve.fixes.memory.lending import Lender

FOLDERS = "torchvision.datasets.folder"


class DecodeCrop:
    """A transform from a file's path, or its bytes, to a 3×H×W tensor.

    It takes the place of opening, converting to RGB, `RandomResizedCrop`, `RandomHorizontalFlip`, `ToTensor`
    and `Normalize`, and decodes only what the crop needs:

        dataset = torchvision.datasets.ImageFolder(root, loader=str, transform=unstarve.DecodeCrop(224))

    Random numbers are drawn from torch's generator as those transforms do, so that the same seed cuts the
    same boxes. Arguments are those of `ImageFolderDataset`. It works in any loader, and can be pickled; in
    `unstarve.DataLoader`, threads do what worker processes would for a dataset like the one above.

    `batch(images)` does several at once on several threads, for a `read_batch` of your own.

    Raises ImageError, with the file's name where it is known, for an image that cannot be decoded.
    """

    def __init__(
        self,
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
    ) -> None:
        self._recipe = recipe_of(
            crop, size, scale, ratio, flip, resize, mean, std, dtype, memory_format, exif=exif
        )

    @property
    def draws(self) -> bool:
        """Whether random numbers are drawn."""
        return self._recipe.draws

    def __call__(self, image: Any) -> torch.Tensor:
        """Return a path's or a file's bytes' image as a tensor of its own."""
        made = _whole(make_one(_bytes_of(image), self._recipe), [image])[0]
        return made if get_worker_info() is None else made.as_subclass(ImageTensor)

    def batch(self, images: Sequence[Any]) -> torch.Tensor:
        """Return images as one tensor, [n, 3, height, width]; what is random is drawn in their order."""
        return _whole(make_batch([_bytes_of(image) for image in images], self._recipe), images)

    def batch_reader_for(self, dataset: Any) -> Any:
        """Return what makes batches of an `ImageFolder(…, loader=str)` with this transform, without the GIL.

        None for any other dataset.
        """
        if not is_plain_folder(dataset) or dataset.loader is not str or dataset.target_transform is not None:
            return None
        return FolderBatches(dataset.samples, self)

    def __repr__(self) -> str:
        return f"DecodeCrop({self._recipe})"


class FolderBatches:
    """The samples of a torchvision folder, made into whole batches by a `DecodeCrop`."""

    releases_gil = True

    def __init__(self, samples: Sequence[tuple[str, int]], transform: DecodeCrop) -> None:
        self._samples = samples
        self._transform = transform
        self.draws = transform.draws

    def read_batch(self, indices: Sequence[int]) -> Any:
        """Return what default_collate would make of the samples."""
        chosen = [self._samples[index] for index in indices]
        images = self._transform.batch([path for path, _ in chosen])
        return [images, torch.tensor([target for _, target in chosen])]


def is_plain_folder(dataset: Any) -> bool:
    """Return whether torchvision's own code makes the samples of this folder; imports no torchvision."""
    folders = sys.modules.get(FOLDERS)
    return folders is not None and type(dataset) in (folders.ImageFolder, folders.DatasetFolder)


def _whole(made: ImageBatch, images: Sequence[Any]) -> torch.Tensor:
    for image, error in zip(images, made.errors, strict=True):
        if error is not None:
            raise with_path(error, _name_of(image)) from error
    return made.batch


def _bytes_of(image: Any) -> Image:
    if isinstance(image, str | os.PathLike):
        try:
            return read_bytes(image)
        except ImageError as error:
            return error
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    raise UsageError(
        f"DecodeCrop takes a path or the bytes of a file, not {type(image).__name__}: in ImageFolder, give"
        " loader=str"
    )


def _name_of(image: Any) -> str:
    return os.fspath(image) if isinstance(image, str | os.PathLike) else "an image given as bytes"


# Made where none is free: as many as a worker has batches under way, seldom all of these.
_lend = Lender(16)


class ImageTensor(torch.Tensor):
    """A tensor in all respects; what is computed from it, or arrives in another process, is a plain one."""

    __torch_function__: Any = torch._C._disabled_torch_function_impl

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.as_subclass(torch.Tensor).__reduce_ex__(protocol)  # type: ignore[no-untyped-call] # torch's


def _collate(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Return what torch's own function returns, in memory that is lent."""
    function = (collate_fn_map or default_collate_fn_map).get(torch.Tensor, collate_tensor_fn)
    plain = [image.as_subclass(torch.Tensor) for image in batch]
    first = plain[0]
    if function is collate_tensor_fn and all(
        image.shape == first.shape and image.dtype == first.dtype for image in plain
    ):
        lent = _lend((len(plain), *first.shape), first.dtype)
        if lent is not None:
            torch.stack(plain, 0, out=lent.inside)
            return lent.batch
    return function(plain, collate_fn_map=collate_fn_map)


default_collate_fn_map[ImageTensor] = _collate
