"""Pictures and cuts of them of every kind, for all that cut images."""

from __future__ import annotations

import numpy as np
import torch

from unstarve.benchmark.bench_data import drawn
from unstarve.fixes.datasets.images.image_codec import Cut
from unstarve.fixes.datasets.images.pillow_decoder import Box, Resized

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CUTS = [
    Cut(),
    Cut(is_flipped=True),
    Cut(Box(3, 5, 20, 31)),
    Cut(Box(0, 0, 60, 80), is_flipped=True),
    Cut(Box(40, 70, 5, 4)),
    Cut(resized=Resized(48, 64, 9, 20)),
    Cut(resized=Resized(240, 320, 100, 31), is_flipped=True),
]


def picture(seed: int, height: int = 60, width: int = 80) -> torch.Tensor:
    return torch.from_numpy(np.asarray(drawn(np.random.default_rng(seed), height, width)).copy())
