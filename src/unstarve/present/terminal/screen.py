"""What stands between a name and a terminal: whatever a run holds, it is shown as text."""

from __future__ import annotations

from typing import TypeVar

from rich.console import Console

from unstarve.model.texts import each_text
from unstarve.words import printable

_MANY_LINES = ("code", "source")
"""Fields that hold code."""
_MOST_CODE = 10_000

T = TypeVar("T")


def screen(*, stderr: bool = False) -> Console:
    """A console to which brackets and colons in a text are brackets and colons."""
    return Console(stderr=stderr, markup=False, emoji=False)


def for_screen(noun: T) -> T:
    """The same noun with every text in it safe to print; what prints a noun begins with this."""
    return each_text(noun, _shown)


def _shown(text: str, field: str) -> str:
    is_code = field in _MANY_LINES
    return printable(text, _MOST_CODE, lines=True) if is_code else printable(text)
