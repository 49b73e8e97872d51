"""Decode, cut, resize, flip and scale images in one pass, from the bytes of a file into the batch.

Native code decodes JPEGs, only the rows and columns of the box, and without the GIL. Pillow decodes every
other format, CMYK JPEGs, and all images where the native part is missing. The first bytes of a file decide,
not its name.

Both give the same pixels except for rounding: Pillow's decoder is libjpeg-turbo as well, and the native
resize uses Pillow's coefficients, always rows first; newer versions of Pillow do columns first where that is
cheaper. The tests allow a mean absolute difference of 0.5 of 255, and 2 for a single value.
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

DTYPES = (torch.uint8, torch.float32, torch.float16, torch.bfloat16)
CHANNELS = 3


class Cut(NamedTuple):
    """The part of an image that goes into the batch: a box, or None for the whole image.

    The box is resized to the size of the batch; with `resized`, to that size, of which the batch has a part.
    """

    box: Box | None = None
    is_flipped: bool = False
    resized: Resized | None = None


class Header(NamedTuple):
    """What the first bytes of an image say: its size, upright if that was asked for."""

    height: int
    width: int
    orientation: int = 1
    """How the stored image has to be turned to be upright, as EXIF counts; 1: not at all."""
    is_plain_jpeg: bool = False
    """A JPEG that GPUs decode: 8 bits, grey or YCbCr, not progressive."""

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.height, self.width


_NO_BOX = (0, 0, 0, 0)
_NOT_RESIZED = (0, 0, 0, 0)


def measure(images: Sequence[Buffer], *, upright: bool = True) -> list[tuple[int, int] | ImageError]:
    """Return height and width of each image, or its error; only headers are read."""
    found = headers(images, upright=upright)
    return [header if isinstance(header, ImageError) else header.size for header in found]


def headers(images: Sequence[Buffer], *, threads: int = 1, upright: bool = True) -> list[Header | ImageError]:
    """Return what the header of each image says, or its error.

    An image with an orientation (EXIF, XMP) is measured upright, unless `upright` is False.
    """
    compiled = _compiled()
    found = (
        [None] * len(images) if compiled is None else compiled.measure_images(list(images), threads, upright)
    )
    return [
        _measured_by_pillow(image, upright)
        if size is None
        else ImageError(size)
        if isinstance(size, str)
        else Header(*size)
        for image, size in zip(images, found, strict=True)
    ]


def decode_cuts(
    images: Sequence[Buffer],
    cuts: Sequence[Cut],
    out: torch.Tensor,
    values: PixelValues,
    *,
    threads: int,
    upright: bool = True,
) -> list[ImageError | None]:
    """Fill out[i] with a cut of image i, resized as Pillow does (antialiased bilinear), flipped and scaled.

    Boxes are in pixels of the upright image, or of the stored one if `upright` is False. `out` is
    [n, 3, h, w] on the CPU, uint8, float32, float16 or bfloat16, contiguous or channels_last. At most
    `threads` threads decode, without the GIL. Returns an error or None for each image; after an error out[i]
    is undefined, and the other images are complete.
    """
    _check(len(images), cuts, out, threads)
    errors: list[ImageError | None] = [None] * len(images)
    for_pillow: Sequence[int] = range(len(images))
    if (compiled := _compiled()) is not None:
        failures, for_pillow = compiled.decode_cuts(
            list(images), _rows(cuts), _described(out, values), threads, upright
        )
        for at, trouble in failures:
            errors[at] = ImageError(trouble)
    if not for_pillow:
        return errors
    table = values.table(out.dtype)

    def cut_by_pillow(at: int) -> None:
        try:
            pillow_decoder.decode_cut(images[at], *cuts[at], out[at], table, upright=upright)
        except ImageError as error:
            errors[at] = error

    _each(for_pillow, cut_by_pillow, threads)
    return errors


def decode_whole(image: Buffer, *, upright: bool = True) -> torch.Tensor:
    """Return all pixels of an image, uint8 [h, w, 3]. Raises ImageError if it cannot be decoded."""
    compiled = _compiled()
    found = None if compiled is None else compiled.measure_images([image], 1, upright)[0]
    if compiled is None or found is None:
        return pillow_decoder.decode(image, upright=upright)
    if isinstance(found, str):
        raise ImageError(found)
    size = Header(*found).size
    try:
        pixels = torch.empty((*size, CHANNELS), dtype=torch.uint8)
    except RuntimeError as error:  # torch raises this when memory runs out
        raise ImageError(NO_MEMORY) from error
    trouble = compiled.decode_whole([image], *size, (pixels.data_ptr(), pixels.nbytes), upright)
    if trouble is not None:
        raise ImageError(trouble)
    return pixels


def cut(
    wholes: Sequence[torch.Tensor],
    cuts: Sequence[Cut],
    out: torch.Tensor,
    values: PixelValues,
    *,
    threads: int,
) -> list[ImageError | None]:
    """Do the same as `decode_cuts` with decoded pixels: contiguous uint8 [h, w, 3] on the CPU."""
    _check(len(wholes), cuts, out, threads)
    for whole in wholes:
        _check_whole(whole)
    errors: list[ImageError | None] = [None] * len(wholes)
    if (compiled := native()) is not None:
        memory = [((whole.data_ptr(), whole.nbytes), *whole.shape[:2]) for whole in wholes]
        failures, _ = compiled.cut_pixels(memory, _rows(cuts), _described(out, values), threads)
        for at, trouble in failures:
            errors[at] = ImageError(trouble)
        return errors
    table = values.table(out.dtype)

    def cut_by_pillow(at: int) -> None:
        try:
            pillow_decoder.cut(wholes[at], *cuts[at], out[at], table)
        except ImageError as error:
            errors[at] = error

    _each(range(len(wholes)), cut_by_pillow, threads)
    return errors


def _compiled() -> ModuleType | None:
    """Return the native module if it can decode: it may have been built without libjpeg-turbo."""
    compiled = native()
    return compiled if hasattr(compiled, "decode_cuts") else None


def _rows(cuts: Sequence[Cut]) -> NDArray[np.int64]:
    """Return a row per cut: whole, top, left, height, width, flip, and the four numbers of `resized`."""
    rows = [
        (box is None, *(box or _NO_BOX), is_flipped, *(resized or _NOT_RESIZED))
        for box, is_flipped, resized in cuts
    ]
    return np.array(rows, np.int64).reshape(-1, 10)


def _described(out: torch.Tensor, values: PixelValues) -> tuple[Any, ...]:
    """Describe a batch to native code.

    Memory, height, width, bytes per item, layout, table, and mean and std if the table is made of them.
    """
    memory = (out.data_ptr(), out.nbytes)
    tables = values.entries(out.dtype), values.factors(out.dtype)
    return memory, *out.shape[2:], out.element_size(), not out.is_contiguous(), *tables


def _measured_by_pillow(image: Buffer, upright: bool) -> Header | ImageError:
    try:
        return Header(*pillow_decoder.measure(image, upright=upright))
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
        raise UsageError(f"{count} images need {count} cuts, got {len(cuts)}")
    if threads < 1:
        raise UsageError(f"threads must be >= 1, got {threads}")
    if out.dim() != 4 or tuple(out.shape[:2]) != (count, CHANNELS) or 0 in out.shape[2:]:
        raise UsageError(f"out must be [{count}, 3, height, width], got {list(out.shape)}")
    if not out.is_cpu:
        raise UsageError(f"out must be on the CPU, got {out.device}")
    if not (out.is_contiguous() or out.is_contiguous(memory_format=torch.channels_last)):
        raise UsageError("out must be contiguous or channels_last")


def _check_whole(whole: torch.Tensor) -> None:
    if whole.dtype != torch.uint8 or whole.dim() != 3 or whole.shape[2] != CHANNELS or not whole.is_cpu:
        raise UsageError(f"pixels must be uint8 [h, w, 3] on the CPU, got {whole.dtype} {list(whole.shape)}")
    if not whole.is_contiguous():
        raise UsageError("pixels must be contiguous")


@dataclass(frozen=True)
class PixelValues:
    """Which numbers the bytes 0–255 become in the batch.

    Without mean and std they keep their value, in any dtype. Otherwise each becomes
    (value / 255 - mean) / std, where a missing mean is 0 and a missing std is 1. A single number applies to
    all three channels.
    """

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    @property
    def is_scaling(self) -> bool:
        """Whether values change."""
        return self.mean is not None or self.std is not None

    def scaling(self) -> torch.Tensor:
        """Return mean and std per channel, float32 [2, 3]."""
        return torch.stack([_channels(self.mean, 0.0, "mean"), _channels(self.std, 1.0, "std")])

    @lru_cache(maxsize=32)  # noqa: B019  # few and small; without it, each would be made for every image
    def table(self, dtype: torch.dtype) -> torch.Tensor | None:
        """Return the number for each byte per channel, [3, 256] of `dtype`; None if bytes stay bytes.

        torch computes the table once, so that all decoders write the same numbers to the last bit. Callers
        share it and must not change it.
        """
        if dtype not in DTYPES:
            raise UsageError(f"dtype must be uint8, float32, float16 or bfloat16, got {dtype}")
        if not self.is_scaling:
            values = torch.arange(256, dtype=torch.float32).expand(CHANNELS, 256)
            return None if dtype == torch.uint8 else values.to(dtype).contiguous()
        if dtype == torch.uint8:
            raise UsageError("mean and std need a floating-point dtype, got uint8")
        scaling = self.scaling()
        mean, std = scaling[0], scaling[1]
        if (std == 0).any():
            raise UsageError("std must not be 0 in any channel")
        values = torch.arange(256, dtype=torch.float32).div(255)
        return ((values - mean[:, None]) / std[:, None]).to(dtype).contiguous()

    @lru_cache(maxsize=32)  # noqa: B019  # as above
    def entries(self, dtype: torch.dtype) -> bytes:
        """Return the table as bytes for native code; empty if bytes stay bytes."""
        table = self.table(dtype)
        return b"" if table is None else _bytes_of(table)

    @lru_cache(maxsize=32)  # noqa: B019  # as above
    def factors(self, dtype: torch.dtype) -> bytes:
        """Return `scaling` as bytes, if native code may compute the values from it instead of the table."""
        return _bytes_of(self.scaling()) if dtype == torch.float32 and self.is_scaling else b""


def _channels(numbers: tuple[float, ...] | None, default: float, name: str) -> torch.Tensor:
    given = (default,) if numbers is None else tuple(numbers)
    if len(given) not in (1, CHANNELS):
        raise UsageError(f"{name} must have 1 or 3 numbers, got {len(given)}")
    return torch.tensor(given, dtype=torch.float32).expand(CHANNELS)


def _bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.view(torch.uint8).numpy().tobytes()
