"""Text for people: every number they read is formatted here, and text from elsewhere is made safe to print.

A share is ``64%``, a ratio ``2.8×``, an interval ``(2.6–2.9)``, a time has the unit that keeps three digits.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

_STEERING = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories that are not text: control, format, surrogate, line and paragraph separators."""

_SHORT_UNITS = ((1.0, "s"), (1e3, "ms"), (1e6, "µs"), (1e9, "ns"))
_RATE_UNITS = ((1.0, "a second"), (60.0, "a minute"), (3600.0, "an hour"))
_LONGEST_IN_SECONDS = 999.5
_LONGEST_IN_MINUTES = 99.95 * 60
_LARGEST_RATIO = 100.0


def percent(share: float) -> str:
    """A share from 0 to 1 with two digits: ``64%``, ``4.2%``, ``0.42%``, ``<0.01%``, ``0%``."""
    value = abs(share) * 100
    if value == 0:
        return "0%"
    if value < 0.005:
        return "<0.01%"
    digits = 0 if value >= 9.95 else 1 if value >= 0.995 else 2
    whole, _, rest = f"{value:.{digits}f}".partition(".")
    rest = rest.rstrip("0")
    return f"{'-' if share < 0 else ''}{whole}{'.' if rest else ''}{rest}%"


def points(difference: float) -> str:
    """The difference of two shares, in percentage points: ``+3.1 points``."""
    return f"{difference * 100:+.1f} points"


def times(value: float, digits: int = 1, *, most: float = _LARGEST_RATIO) -> str:
    """A ratio: ``2.8×``, with ``digits=2`` ``2.84×``.

    Ratios above ``most`` read ``more than 100×``: of a forecast, their digits mean nothing.
    """
    return f"more than {most:.0f}×" if value > most else f"{_figure(value, digits)}×"


def interval(low: float, high: float, digits: int = 1) -> str:
    """Where a value lies: ``(2.6–2.9)``. `digits` as in `times`; ``digits=2`` suits rates."""
    return f"({_figure(low, digits)}–{_figure(high, digits)})"


def times_interval(value: float, low: float, high: float, digits: int = 1) -> str:
    """A ratio and its interval: ``2.8× (2.6–2.9)``; without one that has no width."""
    ratio = times(value, digits)
    return ratio if value > _LARGEST_RATIO or low == high else f"{ratio} {interval(low, high, digits)}"


def duration(seconds: float, deviation_s: float | None = None, *, tick: bool = False) -> str:
    """Three digits and the unit that fits: ``41.2 ms``, ``1.25 s``, ``20.6 min``; ``182 ± 6 µs``.

    `tick` is for the ticks of an axis, which are round: ``20 ms``.
    """
    if seconds == 0 and not deviation_s:
        return "0 s"
    factor, unit = _unit(seconds)
    value = seconds * factor
    digits = _decimals(value, 2)
    spread = "" if deviation_s is None else f" ± {deviation_s * factor:.{digits}f}"
    shown = f"{value:.3g}" if tick and digits else f"{value:,.{digits}f}"
    return f"{shown}{spread} {unit}"


def clock(seconds: float) -> str:
    """A time that is running: ``4.2 s``, ``3:07``, ``2:03:07``."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def rate(per_s: float, *, short: bool = False) -> str:
    """Three digits, or the whole number: ``6.72``, ``430``, ``12,500`` (`short`: ``12.5k``)."""
    for factor, unit in ((1e6, "M"), (1e3, "k")):
        if short and per_s >= 10 * factor:
            return f"{_figure(per_s / factor, 2)}{unit}"
    if 0 < per_s < 0.0995:
        return f"{per_s:.3f}"
    return _figure(per_s, 2)


def mean_count(value: float) -> str:
    """How many there are on average, whole where that is exact: ``32``, ``7.5``."""
    return f"{value:,.0f}" if value == int(value) else _figure(value, 1)


def size(count: float) -> str:
    """Bytes in the unit that fits: ``512 bytes``, ``38 MB``, ``1.5 GB``."""
    for unit in ("bytes", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def size_change(count: float) -> str:
    """Bytes more or less: ``+38 MB``, ``−1.5 GB``, ``0 bytes``."""
    return f"{'+' if count > 0 else '−' if count < 0 else ''}{size(abs(count))}"


def size_rate(per_s: float, low: float | None = None, high: float | None = None) -> str:
    """Bytes over time, where they grow: ``4 MB a second``, ``12 MB a minute (11 MB–14 MB)``."""
    factor, unit = next(((f, u) for f, u in _RATE_UNITS if per_s * f >= 1e6), _RATE_UNITS[-1])
    shown = f"{size(per_s * factor)} {unit}"
    if low is None or high is None:
        return shown
    return f"{shown} ({size(max(low, 0.0) * factor)}–{size(high * factor)})"


def amount(count: float) -> str:
    """How many there are: ``1,281,167``."""
    return f"{count:,.0f}"


def about(count: float) -> str:
    """How many there will be, in two digits: ``910``, ``1,200``."""
    digits = max(len(f"{count:.0f}") - 2, 0)
    return f"{round(count, -digits):,.0f}"


def workers(count: int) -> str:
    """``no worker``, ``1 worker``, ``4 workers``."""
    return "no worker" if count == 0 else "1 worker" if count == 1 else f"{count} workers"


def counted(count: int, noun: str) -> str:
    """``1 error``, ``2 errors``, ``1,200 samples``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def ordinal(number: int) -> str:
    """``1st``, ``2nd``, ``3rd``, ``4th``, …, ``11th``."""
    ending = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _figure(value: float, digits: int) -> str:
    return f"{value:,.{_decimals(value, digits)}f}"


def _decimals(value: float, digits: int) -> int:
    """`digits` below ten, one fewer for each further digit before the point; rounding may add that digit."""
    for larger in range(digits):
        if abs(value) < 10 ** (larger + 1) - 0.5 * 10 ** (larger - digits):
            return digits - larger
    return 0


def _unit(seconds: float) -> tuple[float, str]:
    if seconds >= _LONGEST_IN_MINUTES:
        return 1 / 3600, "h"
    if seconds >= _LONGEST_IN_SECONDS:
        return 1 / 60, "min"
    # 0.9996 of a unit is 1.00 of it, not 1,000 of the next smaller one.
    return next(((f, u) for f, u in _SHORT_UNITS if seconds * f >= 0.9995), _SHORT_UNITS[-1])


MOST_LETTERS = 1000
"""Of a name or a sentence on a screen; more would only push the rest off it."""


def printable(text: str, most: int = MOST_LETTERS, *, lines: bool = False) -> str:
    r"""Text from a file or a program as one harmless line of at most `most` characters.

    Characters that could steer a terminal or hide in a text (control characters, changes of direction,
    invisible ones, lone surrogates) become escapes. `lines` keeps line ends, for code.

    >>> printable("a\x1b[31mb\nc")
    'a\\x1b[31mb c'
    """
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    return cut if cut.isprintable() else "".join(_harmless(c, lines) for c in cut)


def _harmless(character: str, lines: bool) -> str:
    if character == "\n" and lines:
        return character
    if character in "\n\t":
        return " "
    if unicodedata.category(character) not in _STEERING:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
