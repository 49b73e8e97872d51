"""How far a long piece of work is: a bar on a terminal, now and then a line in a log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from unstarve.words import printable

_LINE_EVERY_S = 5.0
_BAR_EVERY_S = 0.1


class Shown:
    """Takes word of progress, from one thread, and shows it no more often than someone can read it."""

    def __init__(self, console: Console, verb: str) -> None:
        self._console = console
        self._verb = verb
        self._bar: Progress | None = None
        self._next_s = time.monotonic() + (0 if console.is_terminal else _LINE_EVERY_S)

    def reach(self, done: int, total: int | None) -> None:
        """So many samples of so many (None: nobody knows) are done."""
        now = time.monotonic()
        if now < self._next_s:
            return
        if self._console.is_terminal:
            self._next_s = now + _BAR_EVERY_S
            self._draw(done, total)
        else:
            self._next_s = now + _LINE_EVERY_S
            of_total = "" if total is None else f" of {total} ({100 * done // max(total, 1)} %)"
            self.note(f"{done}{of_total} samples {self._verb}")

    def note(self, text: str) -> None:
        """Say something above the bar, or in a line of its own."""
        self._console.print(printable(f"unstarve: {text}"), markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()

    def _draw(self, done: int, total: int | None) -> None:
        if self._bar is None:
            columns = (BarColumn(), MofNCompleteColumn(), TextColumn(self._verb), TimeRemainingColumn())
            # No thread of its own: worker processes may be forked while it is on the screen.
            self._bar = Progress(*columns, console=self._console, auto_refresh=False, transient=True)
            self._bar.add_task("", total=total)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, total=total, refresh=True)


@contextmanager
def progress(console: Console, verb: str) -> Iterator[Shown]:
    """Show progress until the block is left; `verb` says what happens to the samples."""
    shown = Shown(console, verb)
    try:
        yield shown
    finally:
        shown.close()
