"""Bytes of picture files → pixels in the batch: decoded, cut, resized, flipped and finished in one go.

JPEGs are served by compiled code, which decodes only the rows and columns of the box and needs no GIL; every
other kind of picture, CMYK, and all of them where the compiled part is missing, by Pillow. Which one is
decided by a picture's first bytes, not by a name.

Both give the same pixels but for rounding: Pillow's own decoder is libjpeg-turbo, too, and the resize
computes with Pillow's coefficients, always rows first; newer Pillows do columns first where that is cheaper.
The bound between them, to which the tests hold them: a mean absolute difference of 0.5 of 255, and no value
further off than 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from unstarve.errors import ImageError, UsageError
from unstarve.fixes.images import pillow
from unstarve.fixes.images.finish import CHANNELS, Finish
from unstarve.fixes.images.orientation import as_stored
from unstarve.fixes.images.pillow import Box
from unstarve.native import native

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Box", "Finish", "cut", "decode_cuts", "decode_whole", "measure"]


def measure(pictures: Sequence[Buffer], *, upright: bool = True) -> list[tuple[int, int] | ImageError]:
    """Return height and width of each picture, or what is wrong with it; only headers are read.

    Of pictures that say how they were held (EXIF) those of the upright one, unless `upright` is False.
    """
    compiled = _compiled()
    pictures = _meant(pictures, upright)
    found = [None] * len(pictures) if compiled is None else compiled.measure_pictures(list(pictures))
    return [
        _measured_by_pillow(picture, upright)
        if size is None
        else ImageError(size)
        if isinstance(size, str)
        else size
        for picture, size in zip(pictures, found, strict=True)
    ]


def decode_cuts(
    pictures: Sequence[Buffer],
    boxes: Sequence[Box | None],
    flips: Sequence[bool],
    out: torch.Tensor,
    finish: Finish,
    *,
    threads: int,
    upright: bool = True,
) -> list[ImageError | None]:
    """Fill out[i] with a box of picture i, resized as Pillow does (antialiased bilinear), flipped, finished.

    A box of None is the whole picture; boxes are in pixels of the upright picture, or, if that is not what
    is wanted, of the stored one. `out` is [n, 3, h, w] on the CPU, uint8,
    float32, float16 or bfloat16, contiguous or channels_last. `threads` is the most threads to use; they need
    no GIL. Returns what is wrong with each picture, None where it was decoded; after a failure out[i] is
    undefined, and the other pictures are all there.
    """
    _check(len(pictures), boxes, flips, out, threads)
    pictures = _meant(pictures, upright)
    errors: list[ImageError | None] = [None] * len(pictures)
    for_pillow: Sequence[int] = range(len(pictures))
    if (compiled := _compiled()) is not None:
        failures, for_pillow = compiled.decode_cuts(
            list(pictures), _cuts(boxes, flips), _described(out, finish), threads
        )
        for at, trouble in failures:
            errors[at] = ImageError(trouble)
    if not for_pillow:
        return errors
    table = finish.table(out.dtype)

    def cut_by_pillow(at: int) -> None:
        try:
            pillow.cut(pillow.decode(pictures[at], upright=upright), boxes[at], flips[at], out[at], table)
        except ImageError as error:
            errors[at] = error

    _each(for_pillow, cut_by_pillow, threads)
    return errors


def decode_whole(picture: Buffer, *, upright: bool = True) -> torch.Tensor:
    """Return the picture's bytes, uint8 [h, w, 3]. Raises ImageError where there are none."""
    compiled = _compiled()
    (picture,) = _meant([picture], upright)
    size = None if compiled is None else compiled.measure_pictures([picture])[0]
    if compiled is None or size is None:
        return pillow.pixels_of(pillow.decode(picture, upright=upright))
    if isinstance(size, str):
        raise ImageError(size)
    pixels = torch.empty((*size, CHANNELS), dtype=torch.uint8)
    trouble = compiled.decode_whole([picture], *size, (pixels.data_ptr(), pixels.nbytes))
    if trouble is not None:
        raise ImageError(trouble)
    return pixels


def cut(
    wholes: Sequence[torch.Tensor],
    boxes: Sequence[Box | None],
    flips: Sequence[bool],
    out: torch.Tensor,
    finish: Finish,
    *,
    threads: int,
) -> None:
    """Do what `decode_cuts` does, from decoded pixels: contiguous uint8 [h, w, 3] on the CPU.

    Raises ImageError for a box that is not within its picture, before anything is written.
    """
    _check(len(wholes), boxes, flips, out, threads)
    for whole, box in zip(wholes, boxes, strict=True):
        _check_whole(whole, box)
    if (compiled := native()) is not None:
        memory = [((whole.data_ptr(), whole.nbytes), *whole.shape[:2]) for whole in wholes]
        compiled.cut_pixels(memory, _cuts(boxes, flips), _described(out, finish), threads)
        return
    table = finish.table(out.dtype)

    def cut_by_pillow(at: int) -> None:
        pillow.cut(pillow.image_of(wholes[at]), boxes[at], flips[at], out[at], table)

    _each(range(len(wholes)), cut_by_pillow, threads)


def _compiled() -> ModuleType | None:
    """Return the compiled module where it can decode: it may have been built without libjpeg-turbo."""
    compiled = native()
    return compiled if hasattr(compiled, "decode_cuts") else None


def _meant(pictures: Sequence[Buffer], upright: bool) -> Sequence[Buffer]:
    return pictures if upright else [as_stored(bytes(picture)) for picture in pictures]


def _cuts(boxes: Sequence[Box | None], flips: Sequence[bool]) -> NDArray[np.int64]:
    """Return a row for each picture: whole, top, left, height, width, flip."""
    rows = [
        (1, 0, 0, 0, 0, flip) if box is None else (0, *box, flip)
        for box, flip in zip(boxes, flips, strict=True)
    ]
    return np.array(rows, np.int64).reshape(-1, 6)


def _described(out: torch.Tensor, finish: Finish) -> tuple[Any, ...]:
    """Return what compiled code must know of a batch.

    Memory, height, width, an item's bytes, layout, table, and mean and std where these make the table.
    """
    memory = (out.data_ptr(), out.nbytes)
    told = finish.entries(out.dtype), finish.factors(out.dtype)
    return memory, *out.shape[2:], out.element_size(), not out.is_contiguous(), *told


def _measured_by_pillow(picture: Buffer, upright: bool) -> tuple[int, int] | ImageError:
    try:
        return pillow.measure(picture, upright=upright)
    except ImageError as error:
        return error


def _each(places: Sequence[int], work: Callable[[int], None], threads: int) -> None:
    if len(places) < 2 or threads == 1:
        for at in places:
            work(at)
        return
    with ThreadPoolExecutor(min(threads, len(places))) as pool:
        list(pool.map(work, places))


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
