"""Seconds per batch."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable
from itertools import islice
from statistics import mean, median, stdev
from typing import Any

import numpy as np
import torch


def seed_all(seed: int) -> None:
    """Make what follows draw the same random numbers."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def time_per_batch(loader: Iterable[Any], *, least_s: float, skip: int = 0) -> float:
    """Return the seconds that a batch takes, over whole epochs that last `least_s` together.

    The start of an epoch counts, unless its first `skip` batches are left out.
    """
    total_s, batches = 0.0, 0
    while batches == 0 or total_s < least_s:
        began = time.perf_counter()
        iterator = iter(loader)
        if skip:
            for _ in islice(iterator, skip):
                pass
            began = time.perf_counter()
        count = 0
        for count, _ in enumerate(iterator, start=1):  # noqa: B007  # the count is used after the loop
            pass
        total_s += time.perf_counter() - began
        if count == 0:
            raise ValueError(f"a loader gave no more than {skip} batches, too few to measure")
        batches += count
    return total_s / batches


def cpu_per_batch(loader: Iterable[Any]) -> float:
    """Return the CPU seconds that a batch takes over an epoch, in this process and in workers that ended."""
    began = _cpu_s()
    batches = sum(1 for _ in loader)
    return (_cpu_s() - began) / max(1, batches)


def _cpu_s() -> float:
    return sum(os.times()[:4])


def summary(batch_s: tuple[float, ...]) -> tuple[float | None, float | None]:
    """Mean and standard deviation; None where there are too few."""
    return (mean(batch_s) if batch_s else None, stdev(batch_s) if len(batch_s) > 1 else None)


def median_ratio(stock_s: Iterable[float], batch_s: Iterable[float]) -> float | None:
    """The median over rounds of stock's time over this way's."""
    ratios = [base / own for base, own in zip(stock_s, batch_s, strict=True)]
    return median(ratios) if ratios else None


def same(a: Any, b: Any) -> bool:
    """Whether two batches hold the same values in the same structure."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return isinstance(b, list | tuple) and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)
