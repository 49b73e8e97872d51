"""Bytes of picture files → pixels in the batch: decoded, cut, resized, flipped and finished in one go.

JPEGs are served by compiled code, which decodes only the rows and columns of the box and needs no GIL; every
other kind of picture, CMYK, and all of them where the compiled part is missing, by Pillow. Which one is
decided by a picture's first bytes, not by a name. Pillow's own decoder is libjpeg-turbo, too, and the resize
computes with the same coefficients, so that both give the same pixels within `fixes/images` tests' bound: a
mean absolute difference of 0.5 and no pixel further off than 4 of 255; equal versions of libjpeg-turbo give
equal pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import torch

from unstarve.errors import ImageError, UsageError
from unstarve.fixes.images import pillow
from unstarve.fixes.images.finish import CHANNELS, Finish
from unstarve.fixes.images.pillow import Box

if TYPE_CHECKING:
    from typing_extensions import Buffer

Result = TypeVar("Result")

__all__ = ["Box", "Finish", "cut", "decode_cuts", "decode_whole", "measure"]


def measure(pictures: Sequence[Buffer]) -> list[tuple[int, int] | ImageError]:
    """Return height and width of each upright picture, or what is wrong with it; only headers are read."""

    def size_of(picture: Buffer) -> tuple[int, int] | ImageError:
        try:
            return pillow.measure(picture)
        except ImageError as error:
            return error

    return [size_of(picture) for picture in pictures]


def decode_cuts(
    pictures: Sequence[Buffer],
    boxes: Sequence[Box | None],
    flips: Sequence[bool],
    out: torch.Tensor,
    finish: Finish,
    *,
    threads: int,
) -> list[ImageError | None]:
    """Fill out[i] with a box of picture i, resized as Pillow does (antialiased bilinear), flipped, finished.

    A box of None is the whole picture; boxes are in upright pixels. `out` is [n, 3, h, w] on the CPU, uint8,
    float32, float16 or bfloat16, contiguous or channels_last. `threads` is the most threads to use; they need
    no GIL. Returns what is wrong with each picture, None where it was decoded; after a failure out[i] is
    undefined, and the other pictures are all there.
    """
    _check(len(pictures), boxes, flips, out, threads)
    table = finish.table(out.dtype)

    def cut_of(at: int) -> ImageError | None:
        try:
            pillow.cut(pillow.decode(pictures[at]), boxes[at], flips[at], out[at], table)
        except ImageError as error:
            return error
        return None

    return _each(len(pictures), cut_of, threads)


def decode_whole(picture: Buffer) -> torch.Tensor:
    """Return the upright picture's bytes, uint8 [h, w, 3]. Raises ImageError where there are none."""
    return pillow.pixels_of(pillow.decode(picture))


def cut(
    wholes: Sequence[torch.Tensor],
    boxes: Sequence[Box | None],
    flips: Sequence[bool],
    out: torch.Tensor,
    finish: Finish,
    *,
    threads: int,
) -> None:
    """Do what `decode_cuts` does, from decoded pixels: contiguous uint8 [h, w, 3] on the CPU."""
    _check(len(wholes), boxes, flips, out, threads)
    for whole, box in zip(wholes, boxes, strict=True):
        _check_whole(whole, box)
    table = finish.table(out.dtype)
    _each(
        len(wholes),
        lambda at: pillow.cut(pillow.image_of(wholes[at]), boxes[at], flips[at], out[at], table),
        threads,
    )


def _each(count: int, work: Callable[[int], Result], threads: int) -> list[Result]:
    if count < 2 or threads == 1:
        return [work(at) for at in range(count)]
    with ThreadPoolExecutor(min(threads, count)) as pool:
        return list(pool.map(work, range(count)))


def _check(
    count: int, boxes: Sequence[Box | None], flips: Sequence[bool], out: torch.Tensor, threads: int
) -> None:
    if not len(boxes) == len(flips) == count:
        raise UsageError(f"{count} pictures need as many boxes and flips, not {len(boxes)} and {len(flips)}")
    if threads < 1:
        raise UsageError(f"at least one thread has to decode, not {threads}")
    if out.dim() != 4 or tuple(out.shape[:2]) != (count, CHANNELS) or 0 in out.shape[2:]:
        raise UsageError(f"out must be [{count}, 3, height, width], not {list(out.shape)}")
    if not out.is_cpu:
        raise UsageError(f"out must be on the CPU, not on {out.device}")
    if not (out.is_contiguous() or out.is_contiguous(memory_format=torch.channels_last)):
        raise UsageError("out must be contiguous or channels_last")


def _check_whole(whole: torch.Tensor, box: Box | None) -> None:
    if whole.dtype != torch.uint8 or whole.dim() != 3 or whole.shape[2] != CHANNELS or not whole.is_cpu:
        raise UsageError(f"pixels must be uint8 [h, w, 3] on the CPU, not {whole.dtype} {list(whole.shape)}")
    if not whole.is_contiguous():
        raise UsageError("pixels must be contiguous")
    if box is not None:
        pillow.check_box(box, *whole.shape[:2])
