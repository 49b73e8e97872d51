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
from unstarve.fixes.datasets.images import pillow_decoder
from unstarve.fixes.datasets.images.pillow_decoder import NO_MEMORY, Box, Resized
from unstarve.native import native

if TYPE_CHECKING:
    from typing_extensions import Buffer
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["Box", "Cut", "PixelValues", "Resized", "cut", "decode_cuts", "decode_whole", "measure"]


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
    finish: PixelValues,
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
            pillow_decoder.decode_cut(images[at], *cuts[at], out[at], table, upright=upright)
        except ImageError as error:
            errors[at] = error

    _each(for_pillow, cut_by_pillow, threads)
    return errors


def decode_whole(image: Buffer, *, upright: bool = True) -> torch.Tensor:
    """Return the image's bytes, uint8 [h, w, 3]. Raises ImageError where there are none."""
    compiled = _compiled()
    size = None if compiled is None else compiled.measure_images([image], upright)[0]
    if compiled is None or size is None:
        return pillow_decoder.decode(image, upright=upright)
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
    wholes: Sequence[torch.Tensor],
    cuts: Sequence[Cut],
    out: torch.Tensor,
    finish: PixelValues,
    *,
    threads: int,
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
            pillow_decoder.cut(wholes[at], *cuts[at], out[at], table)
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


def _described(out: torch.Tensor, finish: PixelValues) -> tuple[Any, ...]:
    """Return what compiled code must know of a batch.

    Memory, height, width, an item's bytes, layout, table, and mean and std where these make the table.
    """
    memory = (out.data_ptr(), out.nbytes)
    told = finish.entries(out.dtype), finish.factors(out.dtype)
    return memory, *out.shape[2:], out.element_size(), not out.is_contiguous(), *told


def _measured_by_pillow(image: Buffer, upright: bool) -> tuple[int, int] | ImageError:
    try:
        return pillow_decoder.measure(image, upright=upright)
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


DTYPES = (torch.uint8, torch.float32, torch.float16, torch.bfloat16)
CHANNELS = 3


@dataclass(frozen=True)
class PixelValues:
    """How 0–255 end up in the batch.

    With neither mean nor std they stay as they are, whatever the batch's type. With one of them each value
    becomes (value / 255 - mean) / std, where a missing mean is 0 and a missing std is 1. One number serves
    all three channels.
    """

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    @property
    def is_scaling(self) -> bool:
        """Whether values change at all."""
        return self.mean is not None or self.std is not None

    def scaling(self) -> torch.Tensor:
        """Return mean and std of each channel, float32 [2, 3]."""
        return torch.stack([_channels(self.mean, 0.0, "mean"), _channels(self.std, 1.0, "std")])

    @lru_cache(maxsize=32)  # noqa: B019  # few and small; each is made for every image otherwise
    def table(self, dtype: torch.dtype) -> torch.Tensor | None:
        """Return what each channel makes of each byte, [3, 256] of `dtype`; None where bytes stay bytes.

        A byte has 256 values, so that what torch makes of them is looked up: the same numbers to the last
        bit, whoever decodes. All callers share it: it is not to be written to.
        """
        if dtype not in DTYPES:
            raise UsageError(f"images are written as uint8, float32, float16 or bfloat16, not as {dtype}")
        if not self.is_scaling:
            values = torch.arange(256, dtype=torch.float32).expand(CHANNELS, 256)
            return None if dtype == torch.uint8 else values.to(dtype).contiguous()
        if dtype == torch.uint8:
            raise UsageError("mean and std make fractions of bytes: choose a floating-point type, not uint8")
        scaling = self.scaling()
        mean, std = scaling[0], scaling[1]
        if (std == 0).any():
            raise UsageError("std is 0 in a channel, and nothing can be divided by it")
        values = torch.arange(256, dtype=torch.float32).div(255)
        return ((values - mean[:, None]) / std[:, None]).to(dtype).contiguous()

    @lru_cache(maxsize=32)  # noqa: B019  # as above
    def entries(self, dtype: torch.dtype) -> bytes:
        """Return the table's memory as compiled code takes it: nothing where bytes stay bytes."""
        table = self.table(dtype)
        return b"" if table is None else _bytes_of(table)

    @lru_cache(maxsize=32)  # noqa: B019  # as above
    def factors(self, dtype: torch.dtype) -> bytes:
        """Return `scaling` as compiled code takes it, where it may compute the table's values from that."""
        return _bytes_of(self.scaling()) if dtype == torch.float32 and self.is_scaling else b""


def _channels(numbers: tuple[float, ...] | None, default: float, name: str) -> torch.Tensor:
    given = (default,) if numbers is None else tuple(numbers)
    if len(given) not in (1, CHANNELS):
        raise UsageError(f"{name} needs one number or one for each of 3 channels, not {len(given)}")
    return torch.tensor(given, dtype=torch.float32).expand(CHANNELS)


def _bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.view(torch.uint8).numpy().tobytes()
