"""Work whose size is known on any machine: CPU work by the CPU time it burns, waiting by the clock.

CPU work is counted in the calling thread's CPU time, so a slow or busy machine changes how long it takes, not
how much it is.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

_LINE = ",".join(str(number / 7) for number in range(500))
_PACKED = zlib.compress(bytes(range(256)) * 512, 6)
_IMAGE = np.random.default_rng(0).random((96, 96, 3), dtype=np.float32)


def parse() -> None:
    """Plain Python that holds the interpreter: text to numbers."""
    [float(word) for word in _LINE.split(",")]


def augment() -> None:
    """NumPy: a blur, a flip and a normalization."""
    blurred = (_IMAGE[1:-1] + _IMAGE[:-2] + _IMAGE[2:]) / 3
    flipped = blurred[:, ::-1]
    (flipped - flipped.mean()) / (flipped.std() + 1e-6)


def decompress() -> None:
    """A C library that releases the interpreter."""
    zlib.decompress(_PACKED)


def burn(ms: float, chunk: Callable[[], object] = parse) -> None:
    """Repeat `chunk` until this thread has spent `ms` on a CPU."""
    until = time.thread_time_ns() + int(ms * 1e6)
    while time.thread_time_ns() < until:
        chunk()


class Model:
    """A training step that burns `ms` in forward, backward and update of a small network."""

    def __init__(self, ms: float, threads: int = 1) -> None:
        torch.set_num_threads(threads)
        self._ms = ms
        self._net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))
        self._optimizer = torch.optim.SGD(self._net.parameters(), lr=1e-3)
        self._inputs = torch.randn(96, 256)

    def __call__(self, batch: Any) -> None:
        burn(self._ms, self._update)

    def _update(self) -> None:
        self._optimizer.zero_grad()
        self._net(self._inputs).square().mean().backward()
        self._optimizer.step()


@dataclass(frozen=True)
class Device:
    """A training step that only waits for an accelerator, as ``.item()`` on its result would."""

    ms: float

    def __call__(self, batch: Any) -> None:
        time.sleep(self.ms / 1e3)
