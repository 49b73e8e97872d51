"""Comparing measurements: in which order to take them, how sure a mean is, and which gain is worth a change.

Everything that compares settings, runs or loaders uses these definitions. Standard library only.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

WORTH_IT = 1.05
"""The speed-up from which a person should change something. Below it less than 5% of the time could be saved,
and training counts as fed."""
WORTH_SWITCHING = 1.02
"""The same for the tuner, which makes the change itself and only if the whole interval is above 1."""
USUAL_ERROR = 0.03
"""Typical error of the ratio of two measured windows on a quiet machine, as a logarithm."""
SINGLE_ERROR = 0.35
"""Assumed error of a single such ratio, which says nothing about its own; on a busy machine it is large."""
WORTH_MENTIONING = 1.01
"""The predicted speed-up from which a change appears in the list of advice, sorted by gain."""

# Two-sided 95 % quantiles of Student's t for 1 … 30 degrees of freedom.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_NORMAL95 = 1.96


def t95(freedom: int) -> float:
    """Two-sided 95 % quantile of Student's t for `freedom` degrees of freedom, at least 1."""
    return _T95[freedom - 1] if freedom <= len(_T95) else _NORMAL95


def half_width(values: Sequence[float]) -> float:
    """Half the width of the 95 % interval of the mean of independent values; infinite for fewer than two."""
    count = len(values)
    return math.inf if count < 2 else t95(count - 1) * statistics.stdev(values) / math.sqrt(count)


_PRIOR = 0.05
"""How far from 0 the means are that `anytime_half_width` is best at: the smaller, the clearer they are."""
_ODDS = 20
"""1 / (1 − 95 %)."""


def anytime_half_width(values: Sequence[float]) -> float:
    """The same for somebody who looks after every value and stops when the interval says enough.

    The interval holds at all times at once, where one of `half_width` would miss the mean more often with
    every look. It is that of a sequential t-test, whose mixture likelihood ratio exceeds 20 in at most 5 % of
    all sequences. Infinite for fewer than three values.
    """
    count = len(values)
    shrink = _PRIOR / (count + _PRIOR)
    level = (_ODDS / math.sqrt(shrink)) ** (2 / max(count, 1))
    if count < 2 or level * shrink >= 1:
        return math.inf
    t_squared = (count - 1) * (level - 1) / (1 - level * shrink)
    return math.sqrt(t_squared / count) * statistics.stdev(values)


def turn_order(contestants: Sequence[T], round_number: int) -> Sequence[T]:
    """The order in which contestants are measured in a round, counted from 0: forwards, then backwards.

    Whatever disturbs a machine lasts longer than one measurement, so contestants are measured in turns, round
    after round, and only compared within a round. Alternating the direction cancels a steady drift.
    """
    return contestants if round_number % 2 == 0 else contestants[::-1]
