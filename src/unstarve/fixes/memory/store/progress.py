"""One line on the terminal while something long is going on."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from unstarve.words import clock, percent

_REPAINT_S = 0.2


class Progress:
    """Says how far `what` is, on stderr where that is a terminal; silent elsewhere."""

    def __init__(self, what: str, total: int, *, show: bool = True, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._show = show and self._stream is not None and self._stream.isatty()
        self._what = what
        self._total = total
        self._begin_s = self._painted_s = time.monotonic()
        self._begin_count: int | None = None

    def due(self) -> bool:
        """Whether enough time has passed to say something new."""
        return self._show and time.monotonic() - self._painted_s >= _REPAINT_S

    def paint(self, count: int) -> None:
        """Say that `count` are done."""
        self._painted_s = time.monotonic()
        if self._begin_count is None:
            self._begin_count = count
        done = count - self._begin_count
        left = (self._total - count) * (self._painted_s - self._begin_s) / done if done else None
        rest = "" if left is None else f", {clock(left)} left"
        self._stream.write(
            f"\r\x1b[K{self._what}: {count:,} of {self._total:,} ({percent(count / self._total)}){rest}"
        )
        self._stream.flush()

    def close(self) -> None:
        """Wipe the line."""
        if self._show and self._begin_count is not None:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
