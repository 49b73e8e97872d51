"""Images for the parts that decode: generated, in a folder per class, as JPEG files of several sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstarve.benchmark.entries import Missing

_CLASSES = 4
_SIZES = ((375, 500), (500, 375), (333, 500), (400, 400), (480, 640), (281, 500))
_QUALITIES = (75, 80, 85, 90, 95)
_SHAPES = 12


def image_files(folder: Path, count: int) -> Path:
    """Return a folder with `count` JPEGs in folders of classes, made the first time. Raises Missing."""
    try:
        import PIL  # noqa: F401  # asked for before anything is made
    except ModuleNotFoundError:
        raise Missing("Pillow is not installed") from None
    done = folder / "done"
    if not done.exists():
        generator = np.random.default_rng(0)
        for number in range(count):
            save_image(folder / "classes", number, generator)
        done.touch()
    return folder / "classes"


def save_image(folder: Path, number: int, generator: np.random.Generator) -> None:
    """Draw an image into the folder of its class; its number says which class, size and quality."""
    from PIL import Image

    at = folder / f"{number % _CLASSES}"
    at.mkdir(parents=True, exist_ok=True)
    height, width = _SIZES[number % len(_SIZES)]
    image: Any = Image.fromarray(drawn(generator, height, width))
    image.save(at / f"{number:05}.jpg", quality=_QUALITIES[number % len(_QUALITIES)])


def drawn(generator: np.random.Generator, height: int, width: int) -> NDArray[np.uint8]:
    """Draw an image, [height, width, 3]: a gradient, shapes on it, coarse and fine noise."""
    down, across = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    slopes = generator.uniform(-120, 120, (2, 3))
    pixels = 128 + down[..., None] * slopes[0] + across[..., None] * slopes[1]
    for _ in range(_SHAPES):
        centre, radii = generator.random(2), generator.uniform(0.03, 0.3, 2)
        inside = ((down - centre[0]) / radii[0]) ** 2 + ((across - centre[1]) / radii[1]) ** 2 < 1
        pixels[inside] += generator.uniform(-90, 90, 3)
    coarse = generator.normal(0, 12, (height // 4 + 1, width // 4 + 1, 1))
    pixels += coarse.repeat(4, 0).repeat(4, 1)[:height, :width]
    pixels += generator.normal(0, 4, (height, width, 1))
    clipped: NDArray[np.uint8] = pixels.clip(0, 255).astype(np.uint8)
    return clipped
