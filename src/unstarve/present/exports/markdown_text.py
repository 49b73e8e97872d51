"""Texts from the data as Markdown: none of them can inject markup."""

from __future__ import annotations

import re
from collections.abc import Iterator

from unstarve.words import printable


def plain(words: str) -> str:
    """One line with the characters escaped that mean something in Markdown or HTML."""
    flat = " ".join(printable(words).split())
    return re.sub(r"([\\`*_\[\]<>|#&~$])", r"\\\1", flat)


def inline_code(words: str) -> str:
    """One line in the type of code."""
    flat = " ".join(printable(words).split()).replace("|", "\\|")
    fence = "`" * (1 + _longest_run(flat))
    return f"{fence} {flat} {fence}" if "`" in flat else f"`{flat}`"


def code_block(code: str, language: str = "python") -> Iterator[str]:
    """The lines of a code block, and an empty one."""
    shown = printable(code, len(code), lines=True)
    fence = "`" * max(3, 1 + _longest_run(shown))
    yield f"{fence}{language}"
    yield shown
    yield fence
    yield ""


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)
