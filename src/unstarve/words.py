"""Text for people: quantities in words, and text from elsewhere made safe to print."""

from __future__ import annotations

import unicodedata

_STEERING = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of characters that are no text: control, format, surrogate, separators of lines."""


def ms(seconds: float) -> str:
    """Milliseconds, or microseconds where they are few."""
    value = seconds * 1e3
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 1 else f"{value * 1e3:.0f} µs"


def size(count: float) -> str:
    """Bytes in the unit that fits."""
    for unit in ("bytes", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def workers(count: int) -> str:
    """``no worker``, ``1 worker``, ``4 workers``."""
    return "no worker" if count == 0 else "1 worker" if count == 1 else f"{count} workers"


MOST_LETTERS = 1000
"""Of a name or a sentence on a screen; more would only push the rest off it."""


def printable(text: str, most: int = MOST_LETTERS, *, lines: bool = False) -> str:
    r"""Text from a file or a program as one harmless line of at most so many characters.

    What could steer a terminal or hide in a text (control characters, changes of direction, invisible ones,
    halves of surrogate pairs) is written as an escape. `lines` keeps the ends of lines, for code.

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
