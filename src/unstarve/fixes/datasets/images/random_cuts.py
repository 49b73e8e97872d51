"""Draw the random boxes and flips of a batch of images.

They are drawn as torchvision's `RandomResizedCrop` and `RandomHorizontalFlip` draw them, number for number
from the same generator, so that the same seed cuts the same boxes. Drawing one by one takes five calls of
torch per image, each of which gives up the GIL and has to get it back from training; native code does a batch
in one call.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from unstarve.fixes.datasets.images.image_codec import Cut
from unstarve.fixes.datasets.images.pillow_decoder import Box
from unstarve.native import native

_ATTEMPTS = 10  # as torchvision makes to fit a random box into an image
_WORTH_A_CALL = 8
"""Images from which on one native call is faster."""
_NUMBERS_PER_IMAGE = 12
"""Numbers drawn ahead for each image, which needs 5 if the first box fits."""
_EXP_AT_ONCE = 1024
"""Of more numbers, math libraries compute the exponential on several threads, and wait for all of them."""


@dataclass(frozen=True)
class RandomBoxes:
    """Boxes of random area (`scale`: share of the image's area) and shape (`ratio`: width / height)."""

    scale: tuple[float, float]
    ratio: tuple[float, float]

    @cached_property
    def log_ratio(self) -> tuple[float, float]:
        """The logarithms of `ratio`, in single precision as in torchvision."""
        low, high = torch.tensor(self.ratio).log().tolist()
        return low, high


def draw_cuts(
    sizes: Sequence[tuple[int, int]],
    boxes: RandomBoxes | None,
    flip: float,
    generator: torch.Generator | None = None,
) -> list[Cut]:
    """Draw a cut for each image of this (height, width), in order.

    `flip` is a probability; 0 draws nothing. `generator` None is torch's own. Without `boxes` the whole image
    is taken.
    """
    if boxes is None and not flip:
        return [Cut() for _ in sizes]
    if boxes is not None and len(sizes) >= _WORTH_A_CALL and (fused := _torch_fuses()) is not None:
        drawn = _draw_natively(sizes, boxes, flip, generator or torch.default_generator, fused)
        if drawn is not None:
            return drawn
    return _draw_one_by_one(sizes, boxes, flip, generator)


def _draw_one_by_one(
    sizes: Sequence[tuple[int, int]],
    boxes: RandomBoxes | None,
    flip: float,
    generator: torch.Generator | None,
) -> list[Cut]:
    draw = _Draw(generator)
    cuts = []
    for height, width in sizes:
        box = None if boxes is None else draw.box(height, width, boxes)
        cuts.append(Cut(box, bool(flip) and draw.uniform(0.0, 1.0) < flip))
    return cuts


def _draw_natively(
    sizes: Sequence[tuple[int, int]],
    boxes: RandomBoxes,
    flip: float,
    generator: torch.Generator,
    fused: bool,
) -> list[Cut] | None:
    """Draw the same in one call without the GIL; None, with nothing drawn, if that cannot be done."""
    compiled = native()
    assert compiled is not None, "_torch_fuses looked"
    state = generator.get_state()
    numbers = np.empty(_NUMBERS_PER_IMAGE * len(sizes), np.uint32)
    logs = torch.empty(len(numbers))
    compiled.peek_draws(state.numpy(), numbers, logs.numpy(), *boxes.log_ratio, fused)
    for at in range(0, len(numbers), _EXP_AT_ONCE):
        logs[at : at + _EXP_AT_ONCE].exp_()  # torch's, because others may round the last bit differently
    listed, rows = np.array(sizes, np.int64), np.empty((len(sizes), 5), np.int64)
    if not compiled.draw_cuts(state.numpy(), numbers, logs.numpy(), listed, *boxes.scale, flip, fused, rows):
        return None  # very long images, whose boxes rarely fit
    generator.set_state(state)
    return [
        Cut(Box(top, left, tall, wide) if tall else _central(*size, boxes.ratio), bool(is_flipped))
        for size, (top, left, tall, wide, is_flipped) in zip(sizes, rows.tolist(), strict=True)
    ]


@functools.cache
def _torch_fuses() -> bool | None:
    """How this torch rounds what it draws; None where native code does not draw the same numbers.

    That is tried out, because the state of a generator and its rounding are not part of torch's interface.
    """
    if not hasattr(native(), "draw_cuts"):
        return None
    sizes = [(375 + at, 500 - at) for at in range(200)] + [(1, 3000)]
    boxes = RandomBoxes((0.08, 1.0), (3 / 4, 4 / 3))
    expected, drawn = torch.Generator(), torch.Generator()
    wanted = _draw_one_by_one(sizes, boxes, 0.5, expected.manual_seed(5))
    for fused in (False, True):
        try:
            found = _draw_natively(sizes, boxes, 0.5, drawn.manual_seed(5), fused)
        except (TypeError, RuntimeError):  # a state of another form
            return None
        if found == wanted and torch.equal(drawn.get_state(), expected.get_state()):
            return fused
    return None


class _Draw:
    """Draws single numbers as torch does, without a new tensor for each."""

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
    """Return the largest central box of an allowed shape, for when no random box fitted."""
    wide, tall = width, height
    if width / height < min(ratio):
        tall = round(width / min(ratio))
    elif width / height > max(ratio):
        wide = round(height * max(ratio))
    return Box((height - tall) // 2, (width - wide) // 2, tall, wide)
