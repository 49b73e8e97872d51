"""Say what a long measurement is doing: one line on a terminal, elsewhere one per stage."""

from __future__ import annotations

import sys
from typing import TextIO


class Telling:
    """As a context manager it leaves a terminal as it found it."""

    def __init__(self, *, show: bool, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._show = show and self._stream is not None
        self._terminal = self._show and self._stream.isatty()
        self._stage = ""

    def stage(self, words: str) -> None:
        """Something new begins."""
        self._stage = words
        if self._terminal:
            self._paint(words)
        elif self._show:
            self._stream.write(f"unstarve: {words}\n")
            self._stream.flush()

    def say(self, words: str) -> None:
        """How far the stage is; of interest only to somebody who is looking."""
        if self._terminal:
            self._paint(f"{self._stage}: {words}")

    def _paint(self, words: str) -> None:
        self._stream.write(f"\r\x1b[Kunstarve: {words}")
        self._stream.flush()

    def __enter__(self) -> Telling:
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
