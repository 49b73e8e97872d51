"""Statistics that analysis needs: spreads, means and ratios with 95% intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unstarve.intervals import half_width
from unstarve.model import Spread


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95% interval."""

    value: float
    low: float
    high: float


def spread_ms(seconds: Sequence[float]) -> Spread | None:
    """Distribution of durations; None when there are none."""
    if not seconds:
        return None
    ms = np.asarray(seconds, dtype=float) * 1e3
    p50, p95 = np.percentile(ms, [50, 95])
    return Spread(float(ms.mean()), float(p50), float(p95), float(ms.max()))


def mean_estimate(values: Sequence[float]) -> Estimate:
    """Mean of at least two independent values."""
    mean = sum(values) / len(values)
    half = half_width(values)
    return Estimate(mean, mean - half, mean + half)


def ratio_estimate(ratios: Sequence[float]) -> Estimate:
    """Geometric mean of at least two independent positive ratios."""
    log = mean_estimate([math.log(ratio) for ratio in ratios])
    return Estimate(math.exp(log.value), math.exp(log.low), math.exp(log.high))


def block_means(values: Sequence[float], blocks: int = 10) -> list[float]:
    """Means of up to `blocks` equal stretches, which are less correlated than neighbouring values."""
    size = len(values) // min(blocks, len(values))
    return [sum(values[i : i + size]) / size for i in range(0, len(values) - size + 1, size)]


def known_total(values: Sequence[int | None]) -> int | None:
    """The sum; None when any value is unknown, and when there is none."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
