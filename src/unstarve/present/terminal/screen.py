"""Safe printing: names and texts from a run cannot steer the terminal."""

from __future__ import annotations

from typing import TypeVar

from rich.console import Console

from unstarve.model.nouns import each_text
from unstarve.words import printable

_MANY_LINES = ("code", "source", "fix")
"""Fields that may hold code."""
_MOST_CODE = 10_000

T = TypeVar("T")


def screen(*, stderr: bool = False) -> Console:
    """A console that prints text as it is: no markup, no emoji codes."""
    return Console(stderr=stderr, markup=False, emoji=False)


def for_screen(noun: T) -> T:
    """The same object with every text in it safe to print. Everything that prints one starts with this."""
    return each_text(noun, _shown)


def _shown(text: str, field: str) -> str:
    is_code = field in _MANY_LINES
    return printable(text, _MOST_CODE, lines=True) if is_code else printable(text)
