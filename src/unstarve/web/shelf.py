"""The lines of the list: at once what is known, the rest is worked out behind the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from unstarve.errors import StoppedError, UnstarveError
from unstarve.web.desk import Desk
from unstarve.web.folder import Entry, Stamp
from unstarve.web.jobs import RUNNING, UNREADABLE, Summary, summarize


@dataclass(frozen=True, slots=True)
class Line:
    """A run and what is known about it."""

    entry: Entry
    summary: Summary | None
    """None: being worked out for the first time."""
    is_stale: bool
    """The run has changed since, or is running: a newer summary is on its way."""


class Shelf:
    """Summaries by run, each kept for as long as its files stay as they are. Lives in one event loop."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._known: dict[str, tuple[Stamp, Summary]] = {}
        self._wanted: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(desk.background)

    def lines(self, entries: Sequence[Entry]) -> list[Line]:
        """What is known about all runs of the folder, without waiting for any."""
        present = {entry.id for entry in entries}
        self._known = {known: found for known, found in self._known.items() if known in present}
        return [self._line(entry) for entry in entries]

    def close(self) -> None:
        """Want nothing any more."""
        for task in self._wanted.values():
            task.cancel()

    def _line(self, entry: Entry) -> Line:
        stamp, summary = self._known.get(entry.id, (None, None))
        # A run that is killed leaves its files as they were, so that running ones are looked at again.
        is_stale = stamp != entry.stamp or (summary is not None and summary.state == RUNNING)
        if is_stale and entry.id not in self._wanted:
            task = asyncio.get_running_loop().create_task(self._work_out(entry))
            self._wanted[entry.id] = task
            task.add_done_callback(lambda _: self._wanted.pop(entry.id, None))
        return Line(entry, summary, is_stale)

    async def _work_out(self, entry: Entry) -> None:
        async with self._room:
            try:
                summary = await self._desk.do(summarize, entry.path, entry.has_parts)
            except StoppedError:
                return
            except UnstarveError as error:
                summary = Summary(UNREADABLE, str(error))
        self._known[entry.id] = (entry.stamp, summary)
