"""Progress of long work: a line that is redrawn on a terminal, a line now and then in a log.

`progress` is for work that counts samples, `stages` for work that goes through named stages. rich is imported
when the first line is drawn, so that a library which shows nothing does not pay for it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from unstarve.words import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_LINE_EVERY_S = 5.0
_BAR_EVERY_S = 0.1


@contextmanager
def progress(console: Console | None, verb: str, *, log: bool = True) -> Iterator[SampleProgress]:
    """Show how many samples are done until the block ends. `verb` says what is done to them: "packed".

    `console` None shows nothing; `log` False shows nothing unless the console is a terminal.
    """
    shown = SampleProgress(console, verb, log=log)
    try:
        yield shown
    finally:
        shown.close()


@contextmanager
def stages(console: Console | None) -> Iterator[StageProgress]:
    """Show the current stage until the block ends: redrawn on a terminal, one line per stage in a log."""
    shown = StageProgress(console)
    try:
        yield shown
    finally:
        shown.close()


def stderr_console() -> Console | None:
    """Return a console on stderr that prints text as it is; None if there is no stderr."""
    if sys.stderr is None:
        return None
    from rich.console import Console  # see the module's docstring

    return Console(file=sys.stderr, markup=False, emoji=False)


class _RedrawnLine:
    """The line on the terminal. Used from one thread; removed by `close`."""

    def __init__(self, console: Console | None) -> None:
        self._console = console
        self._on_terminal = console is not None and console.is_terminal
        self._line: Progress | None = None

    def note(self, text: str) -> None:
        """Print a line that stays."""
        if self._console is not None:
            text = printable(f"unstarve: {text}")
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Remove the line from the terminal."""
        if self._line is not None:
            self._line.stop()

    def _redraw(self, columns: tuple[Any, ...], **fields: Any) -> None:
        if self._line is None:
            from rich.progress import Progress  # see the module's docstring

            # Without a refresh thread: worker processes may be forked while the line is shown.
            self._line = Progress(*columns, console=self._console, auto_refresh=False, transient=True)
            self._line.add_task("", total=None)
            self._line.start()
        self._line.update(self._line.task_ids[0], refresh=True, **fields)


class SampleProgress(_RedrawnLine):
    """Shows a count of samples, no more often than a person can read it."""

    def __init__(self, console: Console | None, verb: str, *, log: bool) -> None:
        super().__init__(console)
        self._verb = verb
        self._shown = console is not None and (log or self._on_terminal)
        self._next_s = time.monotonic() + (0 if self._on_terminal else _LINE_EVERY_S)

    def is_due(self) -> bool:
        """Whether `reach` would draw now; lets a caller skip a count that is expensive to make."""
        return self._shown and time.monotonic() >= self._next_s

    def reach(self, done: int, total: int | None) -> None:
        """Report that `done` of `total` samples (None: unknown) are done."""
        if not self.is_due():
            return
        if self._on_terminal:
            self._next_s = time.monotonic() + _BAR_EVERY_S
            self._redraw(self._columns() if self._line is None else (), completed=done, total=total)
        else:
            self._next_s = time.monotonic() + _LINE_EVERY_S
            of_total = "" if total is None else f" of {total} ({100 * done // max(total, 1)}%)"
            self.note(f"{done}{of_total} samples {self._verb}")

    def _columns(self) -> tuple[Any, ...]:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

        return BarColumn(), MofNCompleteColumn(), TextColumn(self._verb), TimeRemainingColumn()


class StageProgress(_RedrawnLine):
    """Shows the current stage of a measurement and, on a terminal, how far it is."""

    def __init__(self, console: Console | None) -> None:
        super().__init__(console)
        self._stage = ""

    def stage(self, text: str) -> None:
        """Begin a stage."""
        self._stage = text
        if self._on_terminal:
            self._show(text)
        else:
            self.note(text)

    def detail(self, text: str) -> None:
        """Say how far the stage is, on a terminal only."""
        if self._on_terminal:
            self._show(f"{self._stage}: {text}")

    def _show(self, text: str) -> None:
        from rich.progress import TextColumn

        columns = (TextColumn("{task.description}", markup=False),) if self._line is None else ()
        self._redraw(columns, description=printable(f"unstarve: {text}"))
