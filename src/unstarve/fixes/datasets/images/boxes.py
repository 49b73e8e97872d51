"""Which part of each image is cut out, and whether it is mirrored.

Random ones are drawn as torchvision's `RandomResizedCrop` and `RandomHorizontalFlip` draw them, number for
number from the same generator, so that the same seed cuts the same boxes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import torch

from unstarve.fixes.datasets.images.codec import Box, Cut, Resized

_ATTEMPTS = 10


@dataclass(frozen=True)
class RandomBoxes:
    """Boxes of a random area (`scale`: shares of the image's) and shape (`ratio`: width by height)."""

    scale: tuple[float, float]
    ratio: tuple[float, float]

    @cached_property
    def log_ratio(self) -> tuple[float, float]:
        """As torchvision computes it: in single precision."""
        low, high = torch.tensor(self.ratio).log().tolist()
        return low, high


def draw_cuts(
    sizes: Iterable[tuple[int, int]],
    boxes: RandomBoxes | None,
    flip: float,
    generator: torch.Generator | None = None,
) -> list[Cut]:
    """Draw for images of these (height, width), in their order; `flip` is a probability, 0 draws nothing.

    `generator` is None for torch's own. Without `boxes` all of an image is taken.
    """
    if boxes is None and not flip:
        return [Cut() for _ in sizes]
    draw = _Draw(generator)
    cuts = []
    for height, width in sizes:
        box = None if boxes is None else draw.box(height, width, boxes)
        cuts.append(Cut(box, bool(flip) and draw.uniform(0.0, 1.0) < flip))
    return cuts


def middle_of(size: tuple[int, int], shorter: int, height: int, width: int) -> Resized:
    """Return what torchvision's `Resize(shorter)` and `CenterCrop((height, width))` take of an image."""
    tall, wide = size
    if tall <= wide:
        resized = shorter, int(shorter * wide / tall)
    else:
        resized = int(shorter * tall / wide), shorter
    return Resized(*resized, round((resized[0] - height) / 2), round((resized[1] - width) / 2))


class _Draw:
    """torch's draws, one number at a time, without a new tensor for each."""

    def __init__(self, generator: torch.Generator | None) -> None:
        self._generator = generator
        self._real = torch.empty(1)
        self._whole = torch.empty(1, dtype=torch.int64)

    def uniform(self, low: float, high: float) -> float:
        return self._real.uniform_(low, high, generator=self._generator).item()

    def exp_uniform(self, low: float, high: float) -> float:
        return self._real.uniform_(low, high, generator=self._generator).exp_().item()

    def below(self, end: int) -> int:
        return int(self._whole.random_(0, end, generator=self._generator).item())

    def box(self, height: int, width: int, boxes: RandomBoxes) -> Box:
        for _ in range(_ATTEMPTS):
            area = height * width * self.uniform(*boxes.scale)
            shape = self.exp_uniform(*boxes.log_ratio)
            wide, tall = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
            if 0 < wide <= width and 0 < tall <= height:
                top = self.below(height - tall + 1)
                return Box(top, self.below(width - wide + 1), tall, wide)
        return _central(height, width, boxes.ratio)


def _central(height: int, width: int, ratio: tuple[float, float]) -> Box:
    """Return the largest box in the middle whose shape is allowed, for when ten attempts did not fit."""
    wide, tall = width, height
    if width / height < min(ratio):
        tall = round(width / min(ratio))
    elif width / height > max(ratio):
        wide = round(height * max(ratio))
    return Box((height - tall) // 2, (width - wide) // 2, tall, wide)
