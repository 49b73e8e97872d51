"""Pictures, encoded or decoded → one batch, by a recipe.

What is random is drawn first, for all pictures in their order and in the calling thread; the work behind it
needs no GIL and is shared out to threads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import torch

from unstarve.errors import ImageError
from unstarve.fixes.images import codec
from unstarve.fixes.images.boxes import Cut, draw_cuts
from unstarve.fixes.images.recipe import Recipe
from unstarve.fixes.streams import generator_here, threads_here

Picture: TypeAlias = bytes | torch.Tensor | ImageError
"""The bytes of a file, or pixels (uint8 [h, w, 3]), or what was wrong with it."""

_NOTHING = torch.zeros(1, 1, 3, dtype=torch.uint8)
_MOST_TOGETHER = 16
"""Pictures that are resized side by side before their middle is cut out: what is cut away takes memory."""


@dataclass(frozen=True)
class Made:
    """`batch` is [n, 3, height, width]; a picture that has an error left its place in it undefined."""

    batch: torch.Tensor
    errors: list[ImageError | None]


def make_one(picture: Picture, recipe: Recipe) -> Made:
    """Do what `make_batch` does with a single picture, whose tensor is not sent to anybody as it is."""
    return _make([picture], recipe, recipe.empty_one())


def make_batch(pictures: Sequence[Picture], recipe: Recipe) -> Made:
    """Cut, resize, flip and finish pictures, all of one sort: encoded or decoded."""
    return _make(pictures, recipe, recipe.empty(len(pictures)))


def _make(pictures: Sequence[Picture], recipe: Recipe, batch: torch.Tensor) -> Made:
    sizes = _sizes(pictures, recipe)
    good = [size for size in sizes if not isinstance(size, ImageError)]
    drawn = iter(draw_cuts(good, recipe.boxes, recipe.flip, generator_here()))
    cuts = [Cut(None, False) if isinstance(size, ImageError) else next(drawn) for size in sizes]
    errors = [size if isinstance(size, ImageError) else None for size in sizes]
    if recipe.resized is None:
        found = _cut_into(batch, pictures, cuts, recipe, threads_here())
    else:
        found = _middles_into(batch, pictures, sizes, cuts, recipe, recipe.resized)
    return Made(batch, [first or second for first, second in zip(errors, found, strict=True)])


def _sizes(pictures: Sequence[Picture], recipe: Recipe) -> list[tuple[int, int] | ImageError]:
    encoded = [picture for picture in pictures if isinstance(picture, bytes)]
    measured = iter(codec.measure(encoded, upright=recipe.upright))
    return [next(measured) if isinstance(picture, bytes) else _size(picture) for picture in pictures]


def _size(picture: torch.Tensor | ImageError) -> tuple[int, int] | ImageError:
    return (picture.shape[0], picture.shape[1]) if isinstance(picture, torch.Tensor) else picture


def _cut_into(
    out: torch.Tensor, pictures: Sequence[Picture], cuts: Sequence[Cut], recipe: Recipe, threads: int
) -> Sequence[ImageError | None]:
    boxes, flips = [cut.box for cut in cuts], [cut.is_flipped for cut in cuts]
    if any(isinstance(picture, torch.Tensor) for picture in pictures):
        wholes = [picture if isinstance(picture, torch.Tensor) else _NOTHING for picture in pictures]
        codec.cut(wholes, boxes, flips, out, recipe.finish, threads=threads)
        return [None] * len(pictures)
    encoded = [picture if isinstance(picture, bytes) else b"" for picture in pictures]
    return codec.decode_cuts(
        encoded, boxes, flips, out, recipe.finish, threads=threads, upright=recipe.upright
    )


def _middles_into(
    out: torch.Tensor,
    pictures: Sequence[Picture],
    sizes: Sequence[tuple[int, int] | ImageError],
    cuts: Sequence[Cut],
    recipe: Recipe,
    resized: int,
) -> list[ImageError | None]:
    """Resize whole pictures and cut out their middle, as torchvision's `Resize` and `CenterCrop` do.

    Those that come to one size go through the codec together.
    """
    alike: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for at, size in enumerate(sizes):
        if not isinstance(size, ImageError):
            alike[_resized_size(size, resized)].append(at)
    groups = [
        (size, places[first : first + _MOST_TOGETHER])
        for size, places in alike.items()
        for first in range(0, len(places), _MOST_TOGETHER)
    ]
    errors: list[ImageError | None] = [None] * len(pictures)

    def work(group: tuple[tuple[int, int], list[int]]) -> None:
        (height, width), places = group
        whole = torch.empty((len(places), 3, height, width), dtype=recipe.dtype)
        some = [pictures[at] for at in places]
        found = _cut_into(whole, some, [cuts[at] for at in places], recipe, 1)
        top, left = round((height - recipe.height) / 2), round((width - recipe.width) / 2)
        for at, error, picture in zip(places, found, whole, strict=True):
            errors[at] = error
            begin = width - recipe.width - left if cuts[at].is_flipped else left
            out[at] = picture[:, top : top + recipe.height, begin : begin + recipe.width]

    threads = min(threads_here(), len(groups))
    if threads < 2:
        for group in groups:
            work(group)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, groups))
    return errors


def _resized_size(size: tuple[int, int], shorter: int) -> tuple[int, int]:
    height, width = size
    if height <= width:
        return shorter, int(shorter * width / height)
    return int(shorter * height / width), shorter
