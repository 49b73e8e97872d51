"""Folders of small generated images, a folder per class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from unstarve.benchmark.bench_data import drawn

_SIZES = ((37, 50), (60, 41), (45, 45), (33, 80))


def make_folder(root: Path, count: int = 12, classes: int = 2, **options: Any) -> Path:
    """Make `count` JPEGs of four sizes under root/0, root/1 …, every third one a folder deeper.

    `options` are Pillow's for saving.
    """
    generator = np.random.default_rng(0)
    for number in range(count):
        folder = root / f"{number % classes}" / ("deeper" if number % 3 == 0 else "")
        folder.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(drawn(generator, *_SIZES[number % len(_SIZES)]))
        image.save(folder / f"{number:03}.jpg", **{"quality": 90} | options)
    return root


def break_image(path: str | Path) -> None:
    """Leave a file that begins like a JPEG and is none."""
    Path(path).write_bytes(b"\xff\xd8\xff\xe0 not an image at all")
