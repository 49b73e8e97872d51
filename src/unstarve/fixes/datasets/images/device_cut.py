"""Cut, resize, flip and scale decoded images where they are, a whole batch in few operations.

On a GPU one kernel does it all, where torch can compile it. Otherwise resizing is a product with two
matrices of Pillow's coefficients per image, one for rows and one for columns; all images of a batch share one
canvas of the largest box.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from unstarve.fixes.datasets.images import cut_kernel
from unstarve.fixes.datasets.images.image_codec import CHANNELS, Cut, PixelValues
from unstarve.fixes.datasets.images.pillow_decoder import Box

_CANVAS_NUMBERS = 2**28
"""The most numbers of a canvas: half a gigabyte on a GPU. Larger batches are cut in parts."""


def turned_upright(pixels: torch.Tensor, orientation: int) -> torch.Tensor:
    """Return a view of [3, h, w] that is upright. `orientation` counts as EXIF does."""
    if orientation >= 5:
        pixels = pixels.transpose(1, 2)
    flipped = {2: (2,), 3: (1, 2), 4: (1,), 6: (2,), 7: (1, 2), 8: (1,)}.get(orientation, ())
    return pixels.flip(flipped) if flipped else pixels


def cut_on_device(
    images: Sequence[torch.Tensor], cuts: Sequence[Cut], out: torch.Tensor, values: PixelValues
) -> None:
    """Fill out[i] with a cut of images[i], uint8 [3, h, w], on the device of `out`.

    Pixels are those of `image_codec.cut` up to rounding.
    """
    if out.is_cuda and cut_kernel.can_cut(out.device):
        cut_kernel.cut_images(images, cuts, out, values)
    else:
        cut_with_tensors(images, cuts, out, values)


def cut_with_tensors(
    images: Sequence[torch.Tensor], cuts: Sequence[Cut], out: torch.Tensor, values: PixelValues
) -> None:
    """Do it with tensors, in half precision on a GPU."""
    taken = 0
    for part in _parts([_box_of(image, cut) for image, cut in zip(images, cuts, strict=True)]):
        here = slice(taken, taken + len(part))
        _cut_part(images[here], cuts[here], part, out[here], values)
        taken += len(part)


class _Axis(NamedTuple):
    """How a row or a column of boxes is resized: `pixels` become `resized`, of which the batch has a part."""

    pixels: list[int]
    resized: list[int]
    first: list[int]
    is_flipped: list[bool]


def _cut_part(
    images: Sequence[torch.Tensor],
    cuts: Sequence[Cut],
    boxes: Sequence[Box],
    out: torch.Tensor,
    values: PixelValues,
) -> None:
    count, _, height, width = out.shape
    precision = torch.float16 if out.is_cuda else torch.float32
    most = max(box.height for box in boxes), max(box.width for box in boxes)
    canvas = torch.zeros((count, most[0], CHANNELS, most[1]), dtype=precision, device=out.device)
    for image, box, room in zip(images, boxes, canvas, strict=True):
        pixels = image[:, box.top : box.top + box.height, box.left : box.left + box.width]
        room[: box.height, :, : box.width].copy_(pixels.transpose(0, 1))
    targets = [cut.resized or (height, width, 0, 0) for cut in cuts]
    rows = _Axis(
        [box.height for box in boxes], [to[0] for to in targets], [to[2] for to in targets], [False] * count
    )
    columns = _Axis(
        [box.width for box in boxes],
        [to[1] for to in targets],
        [to[3] for to in targets],
        [cut.is_flipped for cut in cuts],
    )
    tall = _coefficients(rows, height, most[0], canvas) @ canvas.flatten(2)
    resized = tall.view(count, height * CHANNELS, most[1]) @ _coefficients(columns, width, most[1], canvas).mT
    pixels = resized.view(count, height, CHANNELS, width).transpose(1, 2).float().round_().clamp_(0, 255)
    if values.is_scaling:
        mean, std = values.scaling().to(out.device).view(2, CHANNELS, 1, 1)
        pixels = pixels.div_(255).sub_(mean).div_(std)
    out.copy_(pixels)


def _coefficients(axis: _Axis, length: int, longest: int, like: torch.Tensor) -> torch.Tensor:
    """Return Pillow's antialiased bilinear weights, [n, length, longest], in the type and place of `like`."""
    numbers = torch.tensor([axis.pixels, axis.resized, axis.first, axis.is_flipped], dtype=torch.float32)
    pixels, resized, first, is_flipped = numbers.to(like.device, non_blocking=True).view(4, -1, 1, 1)
    scale = pixels / resized
    at = torch.arange(length, device=like.device, dtype=torch.float32).view(1, -1, 1)
    at = torch.where(is_flipped > 0, length - 1 - at, at)
    centers = (first + at + 0.5) * scale
    source = torch.arange(longest, device=like.device, dtype=torch.float32)
    weights: torch.Tensor = (1 - (source + 0.5 - centers).abs_() / scale.clamp(min=1)).clamp_(min=0)
    weights *= source < pixels
    weights /= weights.sum(2, keepdim=True)
    return weights.to(like.dtype)


def _box_of(image: torch.Tensor, cut: Cut) -> Box:
    return cut.box or Box(0, 0, image.shape[1], image.shape[2])


def _parts(boxes: Sequence[Box]) -> Iterator[list[Box]]:
    """Split boxes, in order, so that each part fits on a canvas."""
    part: list[Box] = []
    height = width = 0
    for box in boxes:
        height, width = max(height, box.height), max(width, box.width)
        if part and (len(part) + 1) * CHANNELS * height * width > _CANVAS_NUMBERS:
            yield part
            part, height, width = [], box.height, box.width
        part.append(box)
    if part:
        yield part
