"""Long runs: what one record says when it stands for many steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

GROWTH = 1.01
"""Each bucket of a sketch is this many times as wide as the one before: a percentile is right within 0.5%."""

Sketch = tuple[tuple[int, int], ...]
"""Buckets and counts: how many durations lie between ``GROWTH ** bucket`` nanoseconds and the next power."""


class Thinned(NamedTuple):
    """Batches of one loader and epoch that followed each other and were not kept one by one."""

    number: int
    """Of batches."""
    end_ns: int
    """When the last of them was delivered."""
    steps: int
    """Steps that ended with one of them, each from one delivery to the next."""
    step_ns: int
    """All of these steps."""
    wait_sketch: Sketch
    step_sketch: Sketch


class Thinning(NamedTuple):
    """How much of a long run is kept step by step; the rest is sums and histograms of stretches."""

    batches: int
    """All that were delivered to training processes."""
    kept: int
    """Those kept one by one."""
    stretches: int


def middle_ns(bucket: int) -> float:
    """The middle of a bucket."""
    return float(GROWTH ** (bucket + 0.5))


def merged(sketches: Iterable[Sketch]) -> Sketch:
    """One sketch of several."""
    counts: dict[int, int] = {}
    for sketch in sketches:
        for bucket, count in sketch:
            counts[bucket] = counts.get(bucket, 0) + count
    return tuple(sorted(counts.items()))
