"""Make batches of images, encoded or decoded, by a recipe.

Random numbers are drawn for all images in order and in the calling thread. The rest releases the GIL and runs
on several threads, or on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from unstarve.errors import ImageError
from unstarve.fixes.datasets.images import image_codec
from unstarve.fixes.datasets.images.crop_recipe import Recipe, middle_of
from unstarve.fixes.datasets.images.gpu_decoder import make_where_asked
from unstarve.fixes.datasets.images.image_codec import Cut, Header
from unstarve.fixes.datasets.images.image_files import ENCODED, Image
from unstarve.fixes.datasets.images.random_cuts import draw_cuts
from unstarve.fixes.samples.random_streams import generator_here, threads_here

_NOTHING = torch.zeros(1, 1, 3, dtype=torch.uint8)
_NO_CUT = Cut()


@dataclass(frozen=True)
class ImageBatch:
    """A batch, [n, 3, height, width], and an error or None for each image.

    The pixels of a failed image are undefined.
    """

    batch: torch.Tensor
    errors: list[ImageError | None]


def make_one(image: Image, recipe: Recipe) -> ImageBatch:
    """Make a batch of one image in reusable memory, for a tensor that is copied before it is sent on."""
    return _drawn_here([image], recipe).make(recipe.empty_one())


def make_batch(images: Sequence[Image], recipe: Recipe) -> ImageBatch:
    """Make a batch of images, which are either all encoded or all decoded."""
    return _drawn_here(images, recipe).make()


def _drawn_here(images: Sequence[Image], recipe: Recipe) -> PendingImages:
    pending = PendingImages(images, recipe)
    pending.draw(generator_here())
    return pending


class PendingImages:
    """Images, either all encoded or all decoded, of which a batch is made in two more steps."""

    def __init__(self, images: Sequence[Image], recipe: Recipe) -> None:
        self._images = images
        self._recipe = recipe
        self._headers = _headers(images, recipe)
        self._cuts: list[Cut] = []

    def draw(self, generator: torch.Generator | None) -> None:
        """Draw the cuts of all images, in order."""
        recipe = self._recipe
        good = [header.size for header in self._headers if not isinstance(header, ImageError)]
        drawn = iter(draw_cuts(good, recipe.boxes, recipe.flip, generator))
        self._cuts = [
            _NO_CUT if isinstance(header, ImageError) else _cut_of(header.size, next(drawn), recipe)
            for header in self._headers
        ]

    def make(self, memory: torch.Tensor | None = None) -> ImageBatch:
        """Make the batch; on the CPU in `memory`, if that is given."""
        errors = [header if isinstance(header, ImageError) else None for header in self._headers]
        measured = [error or image for error, image in zip(errors, self._images, strict=True)]
        if self._recipe.decode == "cpu":
            batch = self._recipe.empty(len(self._images)) if memory is None else memory
            found = _cut_into(batch, measured, self._cuts, self._recipe)
        else:
            plain = [None if isinstance(header, ImageError) else header for header in self._headers]
            encoded = [image if isinstance(image, ENCODED) else b"" for image in measured]
            batch, found = make_where_asked(encoded, plain, self._cuts, self._recipe)
        return ImageBatch(batch, [first or second for first, second in zip(errors, found, strict=True)])


class PendingFolderBatch:
    """`PendingImages`, and what becomes of them with their labels: `random_streams.PendingBatch`."""

    def __init__(self, images: PendingImages, finish: Callable[[ImageBatch], Any]) -> None:
        self._images = images
        self._finish = finish
        self.draw = images.draw

    def make(self) -> Any:
        """Return the batch with its labels."""
        return self._finish(self._images.make())


def _headers(images: Sequence[Image], recipe: Recipe) -> list[Header | ImageError]:
    encoded = [image for image in images if isinstance(image, ENCODED)]
    read = iter(image_codec.headers(encoded, threads=threads_here(), upright=recipe.upright))
    return [next(read) if isinstance(image, ENCODED) else _header(image) for image in images]


def _header(image: torch.Tensor | ImageError) -> Header | ImageError:
    return Header(image.shape[0], image.shape[1]) if isinstance(image, torch.Tensor) else image


def _cut_of(size: tuple[int, int], drawn: Cut, recipe: Recipe) -> Cut:
    if recipe.resized is None:
        return drawn
    return drawn._replace(resized=middle_of(size, recipe.resized, recipe.height, recipe.width))


def _cut_into(
    out: torch.Tensor, images: Sequence[Image], cuts: Sequence[Cut], recipe: Recipe
) -> Sequence[ImageError | None]:
    threads = threads_here()
    if any(isinstance(image, torch.Tensor) for image in images):
        wholes = [image if isinstance(image, torch.Tensor) else _NOTHING for image in images]
        return image_codec.cut(wholes, cuts, out, recipe.values, threads=threads)
    encoded = [image if isinstance(image, ENCODED) else b"" for image in images]
    return image_codec.decode_cuts(encoded, cuts, out, recipe.values, threads=threads, upright=recipe.upright)


def with_path(error: ImageError, path: str) -> ImageError:
    """Return the error with the file's path in its message."""
    return ImageError(f"{path} cannot be decoded: {error}")
