"""Decode images with Pillow: all formats but JPEG, and JPEG where the native decoder is missing.

Limits and error texts are those of the native decoder.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from unstarve.errors import ImageError, MissingExtraError

if TYPE_CHECKING:
    from PIL import Image
    from typing_extensions import Buffer
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Twice the number at which Pillow warns of a decompression bomb, where Pillow itself refuses to decode; the
# native decoder has the same number.
MAX_PIXELS = 178_956_970
_TOO_LARGE = f"more than the {MAX_PIXELS} pixels that are decoded"

# Resizing takes about 40 bytes for each pixel of a side.
MAX_SIDE = 2**20

NO_MEMORY = "there is not enough memory to decode it"

# The formats that people train on. Pillow knows others, and would run Ghostscript, a programming language, on
# an EPS file of any name.
_FORMATS = (
    "JPEG",
    "PNG",
    "WEBP",
    "BMP",
    "GIF",
    "TIFF",
    "PPM",
    "MPO",
    "AVIF",
    "JPEG2000",
    "TGA",
    "DIB",
    "ICO",
)

_JPEG = b"\xff\xd8\xff"
_JPEG_PIXELS_PER_BYTE = 1024  # every block takes at least a bit, see native/jpeg_header.h
_JPEG_TRUNCATED = "truncated: the JPEG data end too early"

# Up to this size an image is resized as a whole before a part is cut out, as in torchvision: computing only
# the part may round differently.
_MOST_RESIZED_PIXELS = 2**24

_ORIENTATION = 0x0112
_TURNED = (5, 6, 7, 8)  # orientations in which the stored rows are upright columns
_UPRIGHT_BY = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}

_MAX_SCANNED_PIXELS = 2**32
_MAX_SCANS = 500

# A marker with a length; not a byte of coded data that only looks like one.
_MARKER = re.compile(rb"\xff([^\x00\x01\xd0-\xd8\xff])(?=(.{8}))?", re.DOTALL)
_END, _SCAN = 0xD9, 0xDA
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


class Box(NamedTuple):
    """A part of an image, in pixels."""

    top: int
    left: int
    height: int
    width: int


class Resized(NamedTuple):
    """The size to which an image is resized, and where the wanted part begins in it."""

    height: int
    width: int
    top: int
    left: int


def measure(encoded: Buffer, *, upright: bool) -> tuple[int, int]:
    """Return height and width of the image, upright or as stored; only the header is read."""
    with _trouble_named():
        image = _open(encoded)
        width, height = image.size
        # For a TIFF, Pillow returns the size of the upright image, and decodes to it.
        is_turned = upright and image.format != "TIFF" and _orientation(image) in _TURNED
        return (width, height) if is_turned else (height, width)


def decode(encoded: Buffer, *, upright: bool) -> torch.Tensor:
    """Return the pixels of the image, upright or as stored, uint8 [h, w, 3]."""
    with _trouble_named():
        return _pixels_of(_decoded(encoded, upright))


def decode_cut(
    encoded: Buffer,
    box: Box | None,
    flip: bool,
    resized: Resized | None,
    out: torch.Tensor,
    table: torch.Tensor | None,
    *,
    upright: bool,
) -> None:
    """Decode an image, then do the same as `cut`."""
    with _trouble_named():
        _cut(_decoded(encoded, upright), box, flip, resized, out, table)


def cut(
    pixels: torch.Tensor,
    box: Box | None,
    flip: bool,
    resized: Resized | None,
    out: torch.Tensor,
    table: torch.Tensor | None,
) -> None:
    """Resize a box of uint8 pixels, [h, w, 3], into `out`, [3, h, w], flip it, look its bytes up in a table.

    With `resized`, the box is resized to that size, and `out` is a part of it.
    """
    with _trouble_named():
        _cut(_pillow().fromarray(pixels.numpy()), box, flip, resized, out, table)


def check_box(box: Box, height: int, width: int) -> None:
    """Raise ImageError if the box is empty or not within an image of this size."""
    inside = box.top >= 0 and box.left >= 0 and box.top + box.height <= height
    if not inside or box.left + box.width > width or box.height < 1 or box.width < 1:
        raise ImageError(
            f"the box of {box.height}×{box.width} pixels at row {box.top}, column {box.left} "
            f"is not within the image of {height}×{width}"
        )


def _cut(
    image: Image.Image,
    box: Box | None,
    flip: bool,
    resized: Resized | None,
    out: torch.Tensor,
    table: torch.Tensor | None,
) -> None:
    height, width = out.shape[1:]
    if box is not None:
        check_box(box, image.height, image.width)
        image = image.crop((box.left, box.top, box.left + box.width, box.top + box.height))
    image = _resize(image, resized or Resized(height, width, 0, 0), height, width)
    if flip:
        image = image.transpose(_pillow().Transpose.FLIP_LEFT_RIGHT)
    planes = _pixels_of(image).permute(2, 0, 1)
    if table is None:
        out.copy_(planes)
    else:
        for channel, plane in enumerate(planes):
            out[channel] = table[channel][plane.long()]


def _resize(image: Image.Image, to: Resized, height: int, width: int) -> Image.Image:
    """Return `height` × `width` pixels of a resized image."""
    bilinear = _pillow().Resampling.BILINEAR
    if to.height * to.width <= _MOST_RESIZED_PIXELS:
        whole = image.resize((to.width, to.height), bilinear)
        return whole.crop((to.left, to.top, to.left + width, to.top + height))
    across = _needed(image.width, to.width, to.left, width)
    down = _needed(image.height, to.height, to.top, height)
    # Cut out first: Pillow counts the places of a box in single precision.
    part = image.crop((across.first, down.first, across.end, down.end))
    return part.resize((width, height), bilinear, box=(across.left, down.left, across.right, down.right))


class _Needed(NamedTuple):
    """The source pixels of a part of a resized line; `left` and `right` are the part's edges among them."""

    first: int
    end: int
    left: float
    right: float


def _needed(pixels: int, resized: int, first: int, count: int) -> _Needed:
    scale = pixels / resized
    left, right = first * scale, (first + count) * scale
    reach = max(scale, 1.0) + 1
    begin, end = max(0, math.floor(left - reach)), min(pixels, math.ceil(right + reach))
    return _Needed(begin, end, left - begin, min(right - begin, end - begin))


def _decoded(encoded: Buffer, upright: bool) -> Image.Image:
    image = _open(encoded)
    if _is_jpeg(encoded):
        check_scans(encoded, image.width * image.height)
    image.load()
    if upright and (how := _UPRIGHT_BY.get(_orientation(image))) is not None:
        image = image.transpose(_pillow().Transpose[how])
    return image if image.mode == "RGB" else image.convert("RGB")


def _orientation(image: Image.Image) -> Any:
    """Return the EXIF orientation of the image; 1 if it has none that can be read."""
    try:
        return image.getexif().get(_ORIENTATION, 1)
    except Exception:  # damaged EXIF makes Pillow raise SyntaxError, struct.error and others
        return 1


def _pixels_of(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image))


def _pillow() -> Any:
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise MissingExtraError("this image needs Pillow: pip install 'unstarve[images]'") from None
    return Image


@cache
def _formats() -> list[str]:
    """Return those of our formats that this Pillow was built with."""
    module = _pillow()
    module.init()
    return [name for name in _FORMATS if name in module.OPEN]


def _is_jpeg(encoded: Buffer) -> bool:
    return bytes(memoryview(encoded)[: len(_JPEG)]) == _JPEG


def _open(encoded: Buffer) -> Image.Image:
    size = memoryview(encoded).nbytes
    if not size:
        raise ImageError("the file is empty")
    image: Image.Image = _pillow().open(io.BytesIO(encoded), formats=_formats())
    if image.width * image.height > MAX_PIXELS:  # Pillow's own limit can be changed
        raise ImageError(_TOO_LARGE)
    if max(image.size) > MAX_SIDE:
        raise ImageError(f"one side has {max(image.size)} pixels; the limit is {MAX_SIDE}")
    if _is_jpeg(encoded) and image.width * image.height // _JPEG_PIXELS_PER_BYTE > size:
        raise ImageError(_JPEG_TRUNCATED)
    return image


@contextmanager
def _trouble_named() -> Iterator[None]:
    """Turn whatever Pillow raises for a damaged image into an ImageError."""
    image_module = _pillow()
    try:
        yield
    except ImageError:
        raise
    except MemoryError as error:
        raise ImageError(NO_MEMORY) from error
    except image_module.UnidentifiedImageError as error:  # its own message shows an object's address
        raise ImageError("not an image of a known format") from error
    except image_module.DecompressionBombError as error:
        raise ImageError(_TOO_LARGE) from error
    except Exception as error:  # damaged files make Pillow raise SyntaxError, struct.error and others
        raise ImageError(str(error) or type(error).__name__) from error


def check_scans(jpeg: Buffer, pixels: int) -> None:
    """Raise ImageError for a JPEG with more scans than are decoded at its size.

    Each scan can code all pixels again, so that a small file can take hours. The same as in
    native/jpeg_scans.cpp.
    """
    scans, most = count_scans(jpeg), min(_MAX_SCANS, _MAX_SCANNED_PIXELS // max(pixels, 1))
    if scans > most:
        raise ImageError(f"it has {scans} scans; the limit at its size is {most}")


def count_scans(jpeg: Buffer) -> int:
    """Return the number of scans up to the end marker; 1 if the first one holds the whole image."""
    scans = components = at = 0
    is_progressive = False
    while (found := _MARKER.search(jpeg, at)) is not None:
        code, rest = found[1][0], found[2]
        if code == _END or rest is None:
            break
        if code in _FRAMES:
            components, is_progressive = rest[7], code & 3 == 2
        elif code == _SCAN:
            scans += 1
            if not is_progressive and rest[2] == components:
                return 1
        at = found.start() + 2 + max(int.from_bytes(rest[:2], "big"), 2)
    return scans
