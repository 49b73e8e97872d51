"""Statistics that analysis needs: spreads, means and ratios with 95% intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unstarve.intervals import half_width
from unstarve.model import Batch, Spread
from unstarve.model.thinned import Sketch, merged, middle_ns


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95% interval."""

    value: float
    low: float
    high: float


def spread_ms(seconds: Sequence[float], sketches: Iterable[Sketch] = ()) -> Spread | None:
    """Distribution of durations, one by one and in sketches; None when there are none."""
    ms, weights = weighted(seconds, sketches)
    if not len(ms):
        return None
    p50, p95 = np.percentile(
        ms, [50, 95], weights=weights, method="inverted_cdf" if weights is not None else "linear"
    )
    return Spread(float(np.average(ms, weights=weights)), float(p50), float(p95), float(ms.max()))


def wait_spread_ms(batches: Iterable[Batch]) -> Spread | None:
    """Distribution of the waits for batches, thinned ones included."""
    known = list(batches)
    single = [batch.wait_ns / 1e9 for batch in known if batch.thinned is None]
    return spread_ms(single, [b.thinned.wait_sketch for b in known if b.thinned is not None])


def weighted(
    seconds: Sequence[float], sketches: Iterable[Sketch]
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Milliseconds, and how often each counts; None for once."""
    ms = np.asarray(seconds, dtype=float) * 1e3
    buckets = merged(sketches)
    if not buckets:
        return ms, None
    middles = np.array([middle_ns(bucket) / 1e6 for bucket, _ in buckets])
    numbers = np.array([number for _, number in buckets], dtype=float)
    return np.concatenate([ms, middles]), np.concatenate([np.ones(len(ms)), numbers])


def number_of(batches: Iterable[Batch]) -> int:
    """Batches, those included for which another one stands."""
    return sum(batch.weight for batch in batches)


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
