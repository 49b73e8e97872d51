"""The files and images that parts read, created the first time, and how to drop them from the page cache."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unstarve.benchmark.bench_plan import Missing


def tensor_files(folder: Path, count: int, size_bytes: int) -> list[Path]:
    """Return `count` files with a tensor of `size_bytes` each, created the first time."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:05}.pt" for number in range(count)]
    generator = torch.Generator().manual_seed(0)
    for path in paths:
        if not path.exists():
            torch.save(torch.randn(size_bytes // 4, generator=generator), path)
    return paths


def forget(paths: Sequence[Path]) -> None:
    """Drop these files from the page cache; the system does so once they are on storage."""
    for path in paths:
        _write_out(path)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


@cache
def _write_out(path: Path) -> None:
    """Flush a file to storage; once is enough, as it does not change any more."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cached_share(paths: Sequence[Path]) -> float | None:
    """Share of these files in the page cache; None if the kernel does not report it."""
    try:
        residency = import_module("unstarve.fixes.io.page_cache").residency
    except ImportError:
        return None
    shares = [residency(path) for path in paths]
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if known else None


_CLASSES = 4
_SIZES = ((375, 500), (500, 375), (333, 500), (400, 400), (480, 640), (281, 500))
_QUALITIES = (75, 80, 85, 90, 95)
_SHAPES = 12


def image_files(folder: Path, count: int) -> Path:
    """Return a folder with `count` JPEGs in one folder per class, created the first time. Raises Missing."""
    try:
        import PIL  # noqa: F401  # checked before any image is created
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
    """Draw an image into the folder of its class; its number determines class, size and quality."""
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
