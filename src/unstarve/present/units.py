"""Numbers as people read them."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Up to three digits and the unit that fits: ``41.2 ms``."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1:
            return f"{_three_digits(seconds * factor)} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def rate(per_s: float) -> str:
    """Three digits or the whole number: ``6.72``, ``430``, ``12,500``."""
    return _three_digits(per_s)


def share(value: float) -> str:
    """Whole percents: ``58 %``."""
    return f"{value * 100:.0f} %"


def times(value: float, digits: int = 1) -> str:
    """A factor: ``2.4×``; past a hundredfold the digits mean nothing."""
    if value > 100:
        return "more than 100×"
    return f"{value:.0f}×" if value >= 10 else f"{value:.{digits}f}×"


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
