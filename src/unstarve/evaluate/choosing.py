"""Measured settings → conclusions, and only those that the noise allows."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from unstarve.model import Tried

WORTH = 1.05
"""A difference smaller than this is no reason to choose anything."""
_PLAIN = 2.0
"""A difference that needs no second look."""


def ratio(one: Tried, other: Tried) -> float:
    """How many times as fast as the other, by the rounds that both have."""
    return median(_ratios(one, other))


def beats(one: Tried, other: Tried) -> bool:
    """Faster, by more than it is worth, and in every round: luck would have to strike each time.

    What both were measured in only once counts when it is twice as fast.
    """
    ratios = _ratios(one, other)
    return median(ratios) > (WORTH if len(ratios) > 1 else _PLAIN) and min(ratios) > 1


def fastest(tried: Sequence[Tried]) -> Tried:
    """By the typical round."""
    return max(tried, key=lambda one: one.rate)


def least_of_the_fastest(tried: Sequence[Tried]) -> Tried:
    """The first, in the order given, that none of the others beats."""
    return next(one for one in tried if not any(beats(other, one) for other in tried))


def _ratios(one: Tried, other: Tried) -> list[float]:
    return [a / b for a, b in zip(one.rates, other.rates, strict=False)]


def compared(tried: Sequence[Tried]) -> bool:
    """Whether there are two or more, measured often enough to tell a small difference from noise."""
    return len(tried) > 1 and all(len(one.rates) > 1 for one in (tried[0], fastest(tried)))


def worker_candidates(cores: float, cpu_share: float) -> tuple[int, ...]:
    """Numbers of workers to try: doubling, up to where more cannot help.

    Work that is on a CPU all the time gains nothing past the cores; work that waits does, far past them.
    """
    at_most = _MOST_WAITING if cpu_share < _MOSTLY_CPU else 2
    limit = min(max(round(cores * at_most), 2), _MOST_WORKERS)
    doubled = [2**n for n in range(limit.bit_length()) if 2**n <= limit]
    return tuple(sorted({0, *doubled, min(max(round(cores), 1), limit)}))


_MOSTLY_CPU = 0.8
_MOST_WAITING = 8
"""Workers per core that are tried where fetching waits."""
_MOST_WORKERS = 32
