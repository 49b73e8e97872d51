"""Checks of single values in a META: types, ranges, finite numbers. Each returns the value, cleaned."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

LATEST_NS = 1 << 62
"""No time stamp and no duration is larger: 146 years."""
MOST_BYTES = 1 << 45
"""No process holds or reads more bytes."""
MOST_NUMBER = 1 << 31
LONGEST_S = 1e9
MOST_ITEMS = 10_000
"""Length of a list, entries of a mapping."""

Check = Callable[[Any], Any]
"""Returns the value, cleaned; raises ValueError when it is invalid."""


def text(value: Any) -> str:
    """Text; what is not valid Unicode in it is replaced."""
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value.encode("utf-8", "replace").decode()  # file names need not be valid Unicode


def flag(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError("not true or false")
    return value


def whole(least: int, most: int) -> Check:
    """A whole number in a range, both ends included."""

    def check(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError("not a number in range")
        return value

    return check


def number(least: float, most: float) -> Check:
    """A finite number in a range."""

    def check(value: Any) -> float:
        # A NaN fails as well: it is not between two numbers.
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise ValueError("not a number in range")
        return value

    return check


def optional(check: Check) -> Check:
    """The same, or None."""
    return lambda value: None if value is None else check(value)


def list_of(check: Check, most: int = MOST_ITEMS) -> Check:
    """A list of limited length."""

    def check_all(value: Any) -> list[Any]:
        if not isinstance(value, list) or len(value) > most:
            raise ValueError("not a list, or too long")
        return [check(one) for one in value]

    return check_all


def row_of(*checks: Check) -> Check:
    """A list with one check for each of its items."""

    def check_each(value: Any) -> list[Any]:
        if not isinstance(value, list) or len(value) != len(checks):
            raise ValueError("not a row of this length")
        return [check(one) for check, one in zip(checks, value, strict=True)]

    return check_each


def mapping_of(check: Check) -> Check:
    """A mapping from texts, of limited size."""

    def check_all(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or len(value) > MOST_ITEMS:
            raise ValueError("not a mapping, or too large")
        return {text(name): check(one) for name, one in value.items()}

    return check_all


def object_of(checks: Mapping[str, Check]) -> Check:
    """An object with one check for each of its fields; others are left out."""

    def check_each(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError("not an object")
        return {name: check(value.get(name)) for name, check in checks.items()}

    return check_each


def plain(value: Any) -> Any:
    """A value that JSON has a type for, other than a list or an object."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return whole(-LATEST_NS, LATEST_NS)(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return text(value)


moment = whole(0, LATEST_NS)
seconds = number(0, LONGEST_S)
place = whole(0, (1 << 32) - 1)
loader = whole(0, (1 << 16) - 1)
count = whole(0, LATEST_NS)
pid = whole(0, MOST_NUMBER)
