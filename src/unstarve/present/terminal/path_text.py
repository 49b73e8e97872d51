"""Text whose long paths are broken after a separator, not in the middle of a name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

_WORD = re.compile(r"\s*\S+\s*")
_PIECE = re.compile(r"[^/\\]*[/\\]+|[^/\\]+")
_NAME = re.compile(r"[^_.:-]*[_.:-]+|[^_.:-]+")


class PathText:
    """Prints like `Text`, except for words that are longer than a line."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._text.split(allow_blank=True):
            yield from line.divide(_breaks(line.plain, options.max_width)) if line.plain else [line]

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        pieces = [cell_len(piece.strip()) for piece in _pieces(self._text.plain)]
        lines = [cell_len(line) for line in self._text.plain.splitlines()]
        return Measurement(max(pieces, default=0), max(lines, default=0)).with_maximum(options.max_width)


def _pieces(text: str) -> Iterator[str]:
    """The parts of a text between which a line may end."""
    for word in _WORD.findall(text):
        yield from _PIECE.findall(word)


def _breaks(text: str, width: int) -> list[int]:
    """Where new lines begin: between words, then after separators, and only else inside of a name."""
    starts: list[int] = []
    at = used = 0
    for part in _parts(text, width):
        if used and used + cell_len(part.rstrip()) > width:
            starts.append(at)
            used = 0
        at += len(part)
        used += cell_len(part)
    return starts


def _parts(text: str, width: int) -> Iterator[str]:
    """The text in parts that fit a line, each as long as possible by the kind of its end."""
    parts = [text]
    for kind in (_WORD, _PIECE, _NAME):
        parts = [
            smaller
            for part in parts
            for smaller in (
                [part] if cell_len(part.rstrip()) <= width and kind is not _WORD else kind.findall(part)
            )
        ]
    for part in parts:
        yield from [part] if cell_len(part.rstrip()) <= width else chop_cells(part, width)
