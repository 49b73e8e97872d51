"""Progress of a long measurement on stderr: one line on a terminal, elsewhere one line per stage."""

from __future__ import annotations

import sys
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text


class StageProgress:
    """A context manager that leaves a terminal as it found it.

    The line is redrawn only when it changes: a thread that redraws it would disturb the measurement.
    """

    def __init__(self, *, show: bool, stream: TextIO | None = None) -> None:
        stream = sys.stderr if stream is None else stream
        self._console = (
            Console(file=stream, markup=False, emoji=False, highlight=False, force_jupyter=False)
            if show and stream is not None
            else None
        )
        is_terminal = self._console is not None and self._console.is_terminal
        self._line = Live(console=self._console, auto_refresh=False, transient=True) if is_terminal else None
        self._stage = ""

    def stage(self, name: str) -> None:
        """Begin a stage."""
        self._stage = name
        if self._line is not None:
            self._draw(name)
        elif self._console is not None:
            self._console.print(f"unstarve: {name}", soft_wrap=True)

    def detail(self, text: str) -> None:
        """Show how far the stage is; only a terminal shows it."""
        if self._line is not None:
            self._draw(f"{self._stage}: {text}")

    def _draw(self, text: str) -> None:
        assert self._line is not None, "drawn on a terminal only"
        self._line.update(Text(f"unstarve: {text}", no_wrap=True, overflow="ellipsis"), refresh=True)

    def __enter__(self) -> StageProgress:
        if self._line is not None:
            self._line.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._line is not None:
            self._line.stop()
