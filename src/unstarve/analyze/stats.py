"""Statistics that analysis needs: spreads, means and ratios with 95% intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unstarve.model import Spread

# Two-sided 95% quantiles of Student's t for 1 … 30 degrees of freedom.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


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
    count = len(values)
    mean = sum(values) / count
    variance = sum((value - mean) ** 2 for value in values) / (count - 1)
    t = _T95[count - 2] if count - 2 < len(_T95) else 1.96
    half = t * math.sqrt(variance / count)
    return Estimate(mean, mean - half, mean + half)


def ratio_estimate(ratios: Sequence[float]) -> Estimate:
    """Geometric mean of at least two independent positive ratios."""
    log = mean_estimate([math.log(ratio) for ratio in ratios])
    return Estimate(math.exp(log.value), math.exp(log.low), math.exp(log.high))


def block_means(values: Sequence[float], blocks: int = 10) -> list[float]:
    """Means of up to `blocks` equal stretches, which are less correlated than neighbouring values."""
    size = len(values) // min(blocks, len(values))
    return [sum(values[i : i + size]) / size for i in range(0, len(values) - size + 1, size)]
