"""How much memory a cache may take."""

from __future__ import annotations

import re
from dataclasses import dataclass

from unstarve.errors import UsageError
from unstarve.machine import available_bytes
from unstarve.words import percent

DEFAULT_SHARE = 0.5
"""Of the memory that is free when the cache is made: the model, its batches and the workers need the rest."""

_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{letter}{tail}": 1000**n for n, letter in enumerate("kmgt", 1) for tail in ("", "b")}
_UNITS |= {f"{letter}ib": 1024**n for n, letter in enumerate("kmgt", 1)}


@dataclass(frozen=True)
class Budget:
    """Bytes that may be taken, and where the number is from, in words."""

    size_bytes: int
    reason: str


def budget_of(wish: str | int | None) -> Budget:
    """Read what the user wrote: bytes, a text such as "8GB" or "512 MiB", or None for a safe share."""
    if wish is None:
        return Budget(
            int(available_bytes() * DEFAULT_SHARE), f"{percent(DEFAULT_SHARE)} of the memory that is free"
        )
    return Budget(parse_bytes(wish), "budget=")


def parse_bytes(wish: str | int) -> int:
    """Return a number of bytes. Raises UsageError for what is none."""
    if isinstance(wish, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", wish.lower())
        if match is not None and match[2] in _UNITS:
            return int(float(match[1]) * _UNITS[match[2]])
    elif isinstance(wish, int) and wish >= 0 and not isinstance(wish, bool):
        return wish
    raise UsageError(f'budget must be bytes or a text such as "8GB", not {wish!r}')
