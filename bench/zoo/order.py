"""One sample in many is late, and finished batches wait behind it.

With ``in_order=False`` most of the waiting goes away: the batches are ready and only held back.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader

from zoo.case import Case
from zoo.data import Items, Stream, fit
from zoo.truth import Truth
from zoo.work import Device, burn, decompress


@dataclass(frozen=True)
class Tail:
    """One sample in every `every`, at a changing place, takes `late_ms`."""

    every: int
    late_ms: float
    busy: bool = False
    """On a CPU, or asleep."""

    def __call__(self, index: int) -> torch.Tensor:
        block, place = divmod(index, self.every)
        if place == block * 15 % self.every:
            if self.busy:
                burn(self.late_ms, decompress)
            else:
                time.sleep(self.late_ms / 1e3)
        return torch.full((64,), float(index))


def late_replies(truth: Truth, **options: Any) -> None:
    """One late reply in 20 samples, four workers."""
    data = Items(240, Tail(every=20, late_ms=320))
    fit(truth, DataLoader(data, batch_size=2, num_workers=4, **options), Device(14))


def large_samples(truth: Truth, **options: Any) -> None:
    """One sample in 88 of a stream is long to decode; three workers."""
    data = Stream(528, Tail(every=88, late_ms=350, busy=True))
    fit(truth, DataLoader(data, batch_size=4, num_workers=3, **options), Device(16))


CASES = (
    Case("order-late-replies", late_replies, "starved", "order", quick=True),
    Case("order-large-samples", large_samples, "starved", "order"),
)
