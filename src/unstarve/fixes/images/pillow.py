"""Pictures by Pillow: the twin of the compiled JPEG decoder, and what serves every other kind of picture."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from unstarve.errors import ImageError, MissingExtraError

if TYPE_CHECKING:
    from PIL import Image
    from typing_extensions import Buffer

# Twice the number at which Pillow warns of a decompression bomb, as Pillow itself refuses them; the compiled
# decoder knows the same number.
MAX_PIXELS = 178_956_970
_TOO_LARGE = f"more than the {MAX_PIXELS} pixels that are decoded"

_ORIENTATION = 0x0112
_MIRRORED = (2, 3, 4)
_TURNED = (5, 6, 7, 8)  # orientations in which the stored rows are upright columns


class Box(NamedTuple):
    """A part of a picture, in pixels."""

    top: int
    left: int
    height: int
    width: int


def measure(picture: Buffer, *, upright: bool) -> tuple[int, int]:
    """Return height and width of the picture, upright or as it is stored; only the header is read."""
    with _trouble_named():
        image = _open(picture)
        width, height = image.size
        is_turned = upright and image.getexif().get(_ORIENTATION) in _TURNED
        return (width, height) if is_turned else (height, width)


def decode(picture: Buffer, *, upright: bool) -> Image.Image:
    """Return the picture in RGB, upright or as it is stored."""
    with _trouble_named():
        from PIL import ImageOps

        image = _open(picture)
        image.load()
        if upright:
            ImageOps.exif_transpose(image, in_place=True)
        return image if image.mode == "RGB" else image.convert("RGB")


def cut(
    image: Image.Image, box: Box | None, flip: bool, out: torch.Tensor, table: torch.Tensor | None
) -> None:
    """Resize a box of the picture to `out`, [3, h, w], flip it and look its bytes up in the table."""
    resampling, transpose = _pillow().Resampling, _pillow().Transpose
    height, width = out.shape[1:]
    if box is not None:
        check_box(box, image.height, image.width)
        image = image.crop((box.left, box.top, box.left + box.width, box.top + box.height))
    image = image.resize((width, height), resampling.BILINEAR)
    if flip:
        image = image.transpose(transpose.FLIP_LEFT_RIGHT)
    planes = pixels_of(image).permute(2, 0, 1)
    if table is None:
        out.copy_(planes)
    else:
        for channel, plane in enumerate(planes):
            out[channel] = table[channel][plane.long()]


def check_box(box: Box, height: int, width: int) -> None:
    """Raise ImageError where the box is empty or not within a picture of this size."""
    inside = box.top >= 0 and box.left >= 0 and box.top + box.height <= height
    if not inside or box.left + box.width > width or box.height < 1 or box.width < 1:
        raise ImageError(
            f"the box of {box.height}×{box.width} pixels at row {box.top}, column {box.left} "
            f"is not within the picture of {height}×{width}"
        )


def pixels_of(image: Image.Image) -> torch.Tensor:
    """Return the bytes of an RGB picture, [h, w, 3]."""
    return torch.from_numpy(np.array(image))


def image_of(pixels: torch.Tensor) -> Image.Image:
    """Return a picture of uint8 pixels, [h, w, 3]."""
    image: Image.Image = _pillow().fromarray(pixels.numpy())
    return image


def _pillow() -> Any:
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise MissingExtraError("this picture needs Pillow: pip install 'unstarve[images]'") from None
    return Image


def _open(picture: Buffer) -> Image.Image:
    if not memoryview(picture).nbytes:
        raise ImageError("the file is empty")
    image: Image.Image = _pillow().open(io.BytesIO(picture))
    if image.width * image.height > MAX_PIXELS:  # Pillow's own limit can be changed
        raise ImageError(_TOO_LARGE)
    return image


@contextmanager
def _trouble_named() -> Iterator[None]:
    """Turn whatever Pillow raises for a damaged picture into an ImageError."""
    image_module = _pillow()
    try:
        yield
    except ImageError:
        raise
    except image_module.UnidentifiedImageError as error:  # its own message shows an object's address
        raise ImageError("not a picture of a kind that Pillow knows") from error
    except image_module.DecompressionBombError as error:
        raise ImageError(_TOO_LARGE) from error
    except Exception as error:  # damaged files make Pillow raise SyntaxError, struct.error and others
        raise ImageError(str(error) or type(error).__name__) from error
