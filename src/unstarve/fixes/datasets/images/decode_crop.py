"""`DecodeCrop`: the image pipeline of `ImageFolderDataset` as a transform, for datasets of your own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import get_worker_info
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

from unstarve.errors import ImageError, UsageError
from unstarve.fixes.datasets.images.crop_recipe import RATIO, SCALE, Crop, Decode, recipe_of
from unstarve.fixes.datasets.images.gpu_decoder import ask_for_queues, on_host
from unstarve.fixes.datasets.images.image_batches import (
    ImageBatch,
    PendingFolderBatch,
    PendingImages,
    make_batch,
    make_one,
    with_path,
)
from unstarve.fixes.datasets.images.image_files import Image, read_bytes, read_images
from unstarve.fixes.io.reading import Names
from unstarve.fixes.memory.lending import Lender
from unstarve.fixes.samples.random_streams import generator_here

FOLDERS = "torchvision.datasets.folder"
"""Looked up in sys.modules: a dataset of that module has imported torchvision, which we do not."""

# Batches that a worker has in flight at once: memory is allocated only when none is free.
_lend = Lender(16)


class DecodeCrop:
    """A transform from the path or the bytes of an image file to a 3×H×W tensor.

    It replaces opening, converting to RGB, `RandomResizedCrop`, `RandomHorizontalFlip`, `ToTensor` and
    `Normalize`, and decodes only the pixels that the crop needs:

        dataset = torchvision.datasets.ImageFolder(root, loader=str, transform=unstarve.DecodeCrop(224))

    It draws random numbers from torch's generator as those transforms do, so that the same seed cuts the same
    boxes. The arguments are those of `ImageFolderDataset`. It works in any loader and can be pickled;
    `unstarve.DataLoader` reads a dataset like the one above with threads instead of worker processes.

    `batch(images)` makes several images at once on several threads, for a `read_batch` of your own.

    Raises ImageError for an image that cannot be decoded; the message has the file's name if it is known.
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
        decode: Decode = "cpu",
    ) -> None:
        self._recipe = recipe_of(
            size, crop, scale, ratio, flip, resize, mean, std, dtype, memory_format, exif=exif, decode=decode
        )
        if decode != "cpu":
            ask_for_queues()

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers."""
        return self._recipe.draws

    def __call__(self, image: Any) -> torch.Tensor:
        """Return the image in a file, given by its path or its bytes, as a tensor."""
        made = _whole(make_one(_bytes_of(image), self._recipe), [image])[0]
        return made if get_worker_info() is None else made.as_subclass(ImageTensor)

    def batch(self, images: Sequence[Any]) -> torch.Tensor:
        """Return the images as one tensor, [n, 3, height, width]; random numbers are drawn in their order."""
        return _whole(make_batch([_bytes_of(image) for image in images], self._recipe), images)

    def _load(self, paths: Sequence[str]) -> PendingImages:
        names = Names(paths)
        return PendingImages(read_images(names, names.starts), self._recipe)

    def batch_reader_for(self, dataset: Any) -> Any:
        """Return a reader that makes batches of an `ImageFolder(…, loader=str)` without the GIL.

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

    def __init__(
        self, samples: Sequence[tuple[str, int]], transform: DecodeCrop, *, to_host: bool = False
    ) -> None:
        """`to_host`: batches that a GPU makes are copied to where those of the folder are."""
        self._samples = samples
        self._transform = transform
        self._moved: Callable[[torch.Tensor], torch.Tensor] = on_host if to_host else _as_it_is
        self.draws = transform.draws

    def read_batch(self, indices: Sequence[int]) -> Any:
        """Return the batch that default_collate would make of the samples."""
        pending = self.load_batch(indices)
        pending.draw(generator_here())
        return pending.make()

    def load_batch(self, indices: Sequence[int]) -> Any:
        """Read the files of a batch, which is then made in two steps."""
        chosen = [self._samples[index] for index in indices]
        paths = [path for path, _ in chosen]
        return PendingFolderBatch(
            self._transform._load(paths),
            lambda made: [self._moved(_whole(made, paths)), torch.tensor([target for _, target in chosen])],
        )


def is_plain_folder(dataset: Any) -> bool:
    """Return whether the dataset is torchvision's own class, not one derived from it."""
    folders = sys.modules.get(FOLDERS)
    return folders is not None and type(dataset) in (folders.ImageFolder, folders.DatasetFolder)


def _whole(made: ImageBatch, images: Sequence[Any]) -> torch.Tensor:
    for image, error in zip(images, made.errors, strict=True):
        if error is not None:
            raise with_path(error, _name_of(image)) from error
    return made.batch


def _as_it_is(batch: torch.Tensor) -> torch.Tensor:
    return batch


def _bytes_of(image: Any) -> Image:
    if isinstance(image, str | os.PathLike):
        try:
            return read_bytes(image)
        except ImageError as error:
            return error
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    raise UsageError(
        f"DecodeCrop needs the path or the bytes of a file, got {type(image).__name__}: give ImageFolder"
        " loader=str"
    )


def _name_of(image: Any) -> str:
    return os.fspath(image) if isinstance(image, str | os.PathLike) else "an image given as bytes"


class ImageTensor(torch.Tensor):
    """A tensor whose batches are collated into reusable shared memory.

    A worker of torch's own loader returns it: `default_collate` chooses a function by the type of the first
    sample, and that is the only place where a transform can influence how a batch is made. Tensors computed
    from it, or received by another process, are plain ones.
    """

    __torch_function__: Any = torch._C._disabled_torch_function_impl

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.as_subclass(torch.Tensor).__reduce_ex__(protocol)  # type: ignore[no-untyped-call] # torch's


def _collate(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Collate as torch does, into lent memory where possible."""
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
