"""Bytes of image files → pixels in the batch: decoded, cut, resized, flipped and finished in one go.

JPEGs are served by compiled code, which decodes only the rows and columns of the box and needs no GIL; every
other kind of image, CMYK, and all of them where the compiled part is missing, by Pillow. Which one is
decided by an image's first bytes, not by a name.

Both give the same pixels but for rounding: Pillow's own decoder is libjpeg-turbo, too, and the resize
computes with Pillow's coefficients, always rows first; newer Pillows do columns first where that is cheaper.
The bound between them, to which the tests hold them: a mean absolute difference of 0.5 of 255, and no value
further off than 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from unstarve.errors import ImageError, UsageError
from unstarve.fixes.datasets.images import pillow
from unstarve.fixes.datasets.images.finish import CHANNELS, Finish
from unstarve.fixes.datasets.images.pillow import NO_MEMORY, Box, Resized
from unstarve.native import native

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Box", "Cut", "Finish", "Resized", "cut", "decode_cuts", "decode_whole", "measure"]


class Cut(NamedTuple):
    """What is taken out of an image: a box of it, None for all of it.

    The batch has all of the box, resized, or where `resized` says so a part of that.
    """

    box: Box | None = None
    is_flipped: bool = False
    resized: Resized | None = None


_NO_BOX = (0, 0, 0, 0)
_NOT_RESIZED = (0, 0, 0, 0)


def measure(images: Sequence[Buffer], *, upright: bool = True) -> list[tuple[int, int] | ImageError]:
    """Return height and width of each image, or what is wrong with it; only headers are read.

    Of images that say how they were held (EXIF, XMP) those of the upright one, unless `upright` is False.
    """
    compiled = _compiled()
    found = [None] * len(images) if compiled is None else compiled.measure_images(list(images), upright)
    return [
        _measured_by_pillow(image, upright)
        if size is None
        else ImageError(size)
        if isinstance(size, str)
        else size
        for image, size in zip(images, found, strict=True)
    ]


def decode_cuts(
    images: Sequence[Buffer],
    cuts: Sequence[Cut],
    out: torch.Tensor,
    finish: Finish,
    *,
    threads: int,
    upright: bool = True,
) -> list[ImageError | None]:
    """Fill out[i] with a cut of image i, resized as Pillow does (antialiased bilinear), flipped, finished.

    Boxes are in pixels of the upright image, or, if that is not what is wanted, of the stored one. `out` is
    [n, 3, h, w] on the CPU, uint8, float32, float16 or bfloat16, contiguous or channels_last. `threads` is
    the most threads to use; they need no GIL. Returns what is wrong with each image, None where it was
    decoded; after a failure out[i] is undefined, and the other images are all there.
    """
    _check(len(images), cuts, out, threads)
    errors: list[ImageError | None] = [None] * len(images)
    for_pillow: Sequence[int] = range(len(images))
    if (compiled := _compiled()) is not None:
        failures, for_pillow = compiled.decode_cuts(
            list(images), _rows(cuts), _described(out, finish), threads, upright
        )
        for at, trouble in failures:
            errors[at] = ImageError(trouble)
    if not for_pillow:
        return errors
    table = finish.table(out.dtype)

    def cut_by_pillow(at: int) -> None:
        try:
            pillow.decode_cut(images[at], *cuts[at], out[at], table, upright=upright)
        except ImageError as error:
            errors[at] = error

    _each(for_pillow, cut_by_pillow, threads)
    return errors


def decode_whole(image: Buffer, *, upright: bool = True) -> torch.Tensor:
    """Return the image's bytes, uint8 [h, w, 3]. Raises ImageError where there are none."""
    compiled = _compiled()
    size = None if compiled is None else compiled.measure_images([image], upright)[0]
    if compiled is None or size is None:
        return pillow.decode(image, upright=upright)
    if isinstance(size, str):
        raise ImageError(size)
    try:
        pixels = torch.empty((*size, CHANNELS), dtype=torch.uint8)
    except RuntimeError as error:  # torch's word for memory that is not there
        raise ImageError(NO_MEMORY) from error
    trouble = compiled.decode_whole([image], *size, (pixels.data_ptr(), pixels.nbytes), upright)
    if trouble is not None:
        raise ImageError(trouble)
    return pixels


def cut(
    wholes: Sequence[torch.Tensor], cuts: Sequence[Cut], out: torch.Tensor, finish: Finish, *, threads: int
) -> list[ImageError | None]:
    """Do what `decode_cuts` does, from decoded pixels: contiguous uint8 [h, w, 3] on the CPU."""
    _check(len(wholes), cuts, out, threads)
    for whole in wholes:
        _check_whole(whole)
    errors: list[ImageError | None] = [None] * len(wholes)
    if (compiled := native()) is not None:
        memory = [((whole.data_ptr(), whole.nbytes), *whole.shape[:2]) for whole in wholes]
        failures, _ = compiled.cut_pixels(memory, _rows(cuts), _described(out, finish), threads)
        for at, trouble in failures:
            errors[at] = ImageError(trouble)
        return errors
    table = finish.table(out.dtype)

    def cut_by_pillow(at: int) -> None:
        try:
            pillow.cut(wholes[at], *cuts[at], out[at], table)
        except ImageError as error:
            errors[at] = error

    _each(range(len(wholes)), cut_by_pillow, threads)
    return errors


def _compiled() -> ModuleType | None:
    """Return the compiled module where it can decode: it may have been built without libjpeg-turbo."""
    compiled = native()
    return compiled if hasattr(compiled, "decode_cuts") else None


def _rows(cuts: Sequence[Cut]) -> NDArray[np.int64]:
    """Return a row for each cut: whole, top, left, height, width, flip, and four numbers of `resized`."""
    rows = [
        (box is None, *(box or _NO_BOX), is_flipped, *(resized or _NOT_RESIZED))
        for box, is_flipped, resized in cuts
    ]
    return np.array(rows, np.int64).reshape(-1, 10)


def _described(out: torch.Tensor, finish: Finish) -> tuple[Any, ...]:
    """Return what compiled code must know of a batch.

    Memory, height, width, an item's bytes, layout, table, and mean and std where these make the table.
    """
    memory = (out.data_ptr(), out.nbytes)
    told = finish.entries(out.dtype), finish.factors(out.dtype)
    return memory, *out.shape[2:], out.element_size(), not out.is_contiguous(), *told


def _measured_by_pillow(image: Buffer, upright: bool) -> tuple[int, int] | ImageError:
    try:
        return pillow.measure(image, upright=upright)
    except ImageError as error:
        return error


def _each(places: Sequence[int], work: Callable[[int], None], threads: int) -> None:
    if len(places) < 2 or threads == 1:
        for at in places:
            work(at)
        return
    with ThreadPoolExecutor(min(threads, len(places))) as pool:
        list(pool.map(work, places))


def _check(count: int, cuts: Sequence[Cut], out: torch.Tensor, threads: int) -> None:
    if len(cuts) != count:
        raise UsageError(f"{count} images need as many cuts, not {len(cuts)}")
    if threads < 1:
        raise UsageError(f"at least one thread has to decode, not {threads}")
    if out.dim() != 4 or tuple(out.shape[:2]) != (count, CHANNELS) or 0 in out.shape[2:]:
        raise UsageError(f"out must be [{count}, 3, height, width], not {list(out.shape)}")
    if not out.is_cpu:
        raise UsageError(f"out must be on the CPU, not on {out.device}")
    if not (out.is_contiguous() or out.is_contiguous(memory_format=torch.channels_last)):
        raise UsageError("out must be contiguous or channels_last")


def _check_whole(whole: torch.Tensor) -> None:
    if whole.dtype != torch.uint8 or whole.dim() != 3 or whole.shape[2] != CHANNELS or not whole.is_cpu:
        raise UsageError(f"pixels must be uint8 [h, w, 3] on the CPU, not {whole.dtype} {list(whole.shape)}")
    if not whole.is_contiguous():
        raise UsageError("pixels must be contiguous")
