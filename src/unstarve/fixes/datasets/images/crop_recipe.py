"""How an image becomes a tensor: which part is cut out, at which size, in which numbers.

How random boxes are drawn is in `random_cuts`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch

from unstarve.errors import UsageError
from unstarve.fixes.datasets.images.image_codec import DTYPES, PixelValues
from unstarve.fixes.datasets.images.pillow_decoder import Resized
from unstarve.fixes.datasets.images.random_cuts import RandomBoxes
from unstarve.fixes.memory.buffers import Allocator, Recycled, empty_batch

Crop: TypeAlias = Literal["random_resized", "center"] | None
Decode: TypeAlias = Literal["cpu", "cuda", "auto"]

SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
_RESIZED = 256 / 224
"""The shorter side before a center crop, relative to the crop: the usual recipe for evaluation."""
_CHANNELS = 3

# Reused once a batch is collated: page faults of new memory would take a third of the decoding time.
_singles = Recycled(128)


@dataclass(frozen=True)
class Recipe:
    """How an image becomes 3 × height × width numbers. `recipe_of` makes it and checks the arguments."""

    height: int
    width: int
    boxes: RandomBoxes | None
    """How random boxes are drawn; None for a crop that is not random."""
    resized: int | None
    """The length to which a center crop resizes the shorter side first; None for other crops."""
    flip: float
    values: PixelValues
    dtype: torch.dtype
    channels_last: bool
    upright: bool
    """Whether images are first turned upright, by their EXIF or XMP orientation."""
    decode: Decode = "cpu"
    """Where images are decoded and batches are made; "auto" decides at the first batch."""

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers."""
        return self.boxes is not None or self.flip > 0

    def empty(self, count: int, allocate: Allocator = empty_batch) -> torch.Tensor:
        """Return memory for a batch of `count` images."""
        if self.channels_last:
            return allocate((count, self.height, self.width, _CHANNELS), self.dtype).permute(0, 3, 1, 2)
        return allocate((count, _CHANNELS, self.height, self.width), self.dtype)

    def empty_one(self) -> torch.Tensor:
        """Return reusable memory for a single image, which a collate function copies into a batch."""
        return self.empty(1, _singles)


def recipe_of(
    size: int | Sequence[int],
    crop: Crop,
    scale: Sequence[float],
    ratio: Sequence[float],
    flip: float | None,
    resize: int | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    dtype: torch.dtype,
    memory_format: torch.memory_format,
    *,
    exif: bool,
    decode: Decode,
) -> Recipe:
    """Return the recipe for the arguments of `DecodeCrop`. Raises UsageError for a wrong one."""
    height, width = _sizes(size)
    if crop not in ("random_resized", "center", None):
        raise UsageError(f'crop must be "random_resized", "center" or None, got {crop!r}')
    if flip is None:
        flip = 0.5 if crop == "random_resized" else 0.0
    if not 0 <= flip <= 1:
        raise UsageError(f"flip must be a probability between 0 and 1, got {flip!r}")
    if dtype not in DTYPES:
        raise UsageError(
            f"dtype must be torch.uint8, torch.float32, torch.float16 or torch.bfloat16, got {dtype!r}"
        )
    if memory_format not in (torch.contiguous_format, torch.channels_last):
        raise UsageError(
            f"memory_format must be torch.contiguous_format or torch.channels_last, got {memory_format!r}"
        )
    if decode not in ("cpu", "cuda", "auto"):
        raise UsageError(f'decode must be "cpu", "cuda" or "auto", got {decode!r}')
    return Recipe(
        height,
        width,
        RandomBoxes(_span("scale", scale), _span("ratio", ratio)) if crop == "random_resized" else None,
        _resized(resize, height, width) if crop == "center" else None,
        float(flip),
        _pixel_values(mean, std, dtype),
        dtype,
        memory_format is torch.channels_last,
        exif,
        decode,
    )


def _sizes(size: int | Sequence[int]) -> tuple[int, int]:
    try:
        sizes = tuple(map(operator.index, size if isinstance(size, Sequence) else (size, size)))
    except TypeError:
        sizes = ()
    if len(sizes) != 2 or min(sizes) < 1:
        raise UsageError(f"size must be a number of pixels > 0, or (height, width), got {size!r}")
    return sizes[0], sizes[1]


def _span(name: str, values: Sequence[float]) -> tuple[float, float]:
    if len(values) != 2 or not 0 < values[0] <= values[1]:
        raise UsageError(f"{name} must be two numbers > 0, the smaller one first, got {values!r}")
    return float(values[0]), float(values[1])


def _resized(resize: int | None, height: int, width: int) -> int:
    if resize is None:
        return int(max(height, width) * _RESIZED)
    if resize < max(height, width):
        raise UsageError(f"resize must be >= the size of the crop, {max(height, width)}, got {resize}")
    return operator.index(resize)


def _pixel_values(mean: Any, std: Any, dtype: torch.dtype) -> PixelValues:
    if (mean is None) != (std is None):
        raise UsageError("mean and std go together: give both, or neither")
    if mean is None:  # bytes stay bytes, or become 0–1
        return PixelValues() if dtype is torch.uint8 else PixelValues((0.0,) * _CHANNELS, (1.0,) * _CHANNELS)
    if dtype is torch.uint8:
        raise UsageError("mean and std need a floating-point dtype, such as torch.float32")
    if len(mean) != _CHANNELS or len(std) != _CHANNELS or min(std) <= 0:
        raise UsageError(
            f"mean and std must be {_CHANNELS} numbers each, std > 0, got mean={mean!r}, std={std!r}"
        )
    return PixelValues(tuple(map(float, mean)), tuple(map(float, std)))


def middle_of(size: tuple[int, int], shorter: int, height: int, width: int) -> Resized:
    """Return the part that torchvision's `Resize(shorter)` and `CenterCrop((height, width))` keep."""
    tall, wide = size
    if tall <= wide:
        resized = shorter, int(shorter * wide / tall)
    else:
        resized = int(shorter * tall / wide), shorter
    return Resized(*resized, round((resized[0] - height) / 2), round((resized[1] - width) / 2))
