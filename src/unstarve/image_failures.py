"""How many images the datasets of this process could not decode.

A recording reports this number. Datasets register a counter here, so that recording need not know them.
"""

from __future__ import annotations

from collections.abc import Callable

_counters: list[Callable[[], int]] = []


def register_failure_counter(counter: Callable[[], int]) -> None:
    """Add a function that returns how many images have failed since the process started."""
    _counters.append(counter)


def count_failed_images() -> int:
    """Return how many images could not be decoded so far."""
    return sum(counter() for counter in _counters)
