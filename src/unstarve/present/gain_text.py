"""A predicted gain in words, the same in every report."""

from __future__ import annotations

from unstarve.model import Gain
from unstarve.words import times_interval

_CLEAR = 1.2
"""From here on one decimal says enough."""


def gain_text(gain: Gain) -> str:
    """``≈ 2.8× (2.6–2.9) predicted``; says so when the change may slow training down."""
    digits = 1 if gain.predicted >= _CLEAR and not gain.may_be_loss else 2
    told = f"≈ {times_interval(gain.predicted, gain.low, gain.high, digits)} predicted"
    return told + ("; it may also be slower: measure it" if gain.may_be_loss else "")
