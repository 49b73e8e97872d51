"""Images for tests, generated: waves, gradients and noise, the same ones every time."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

ORIENTATION = 0x0112


def pixels(height: int, width: int, seed: int = 0) -> np.ndarray:
    rows, columns = np.mgrid[:height, :width]
    channels = [
        128 + 90 * np.sin(columns / 9 + rows / 17),
        columns * 255 / max(width - 1, 1),
        rows * 255 / max(height - 1, 1),
    ]
    noisy = np.stack(channels, -1) + np.random.default_rng(seed).normal(0, 10, (height, width, 3))
    return noisy.clip(0, 255).astype(np.uint8)


def image(
    height: int,
    width: int,
    kind: str = "jpeg",
    *,
    mode: str = "RGB",
    orientation: int = 1,
    seed: int = 0,
    **options: Any,
) -> bytes:
    """Return a file of the kind; `options` go to Pillow's encoder."""
    image = Image.fromarray(pixels(height, width, seed)).convert(mode)
    if orientation != 1:
        options["exif"] = Image.Exif()
        options["exif"][ORIENTATION] = orientation
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def with_size(jpeg: bytes, height: int, width: int) -> bytes:
    """Return a JPEG whose header claims to be of this size."""
    at = 2
    while jpeg[at + 1] not in (0xC0, 0xC2):
        at += 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
    return jpeg[: at + 5] + height.to_bytes(2, "big") + width.to_bytes(2, "big") + jpeg[at + 9 :]
