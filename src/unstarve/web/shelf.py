"""The lines of the list: at once what is known, the rest is worked out behind the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unstarve import api
from unstarve.errors import ServerBusyError, StoppedError, UnstarveError
from unstarve.model import Live, RunState
from unstarve.web.desk import Desk
from unstarve.web.folder import Entry, Stamp
from unstarve.web.jobs import RUNNING, UNREADABLE, Summary, running, summarize
from unstarve.web.private import without_folders


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
        self._followed: dict[str, Iterator[Live]] = {}
        self._room = asyncio.Semaphore(desk.limits.background)

    def lines(self, entries: Sequence[Entry]) -> list[Line]:
        """What is known about all runs of the folder, without waiting for any."""
        present = {entry.id: entry for entry in entries}
        self._known = {known: found for known, found in self._known.items() if known in present}
        for followed in list(self._followed):
            if followed not in present or not present[followed].has_parts:
                self._followed.pop(followed, None)
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
        try:
            self._known[entry.id] = (entry.stamp, await self._summary(entry))
        except (StoppedError, ServerBusyError):  # says nothing of the run; whoever asks next tries again
            return
        except UnstarveError as error:
            self._known[entry.id] = (
                entry.stamp,
                Summary(UNREADABLE, without_folders(str(error), [entry.path])),
            )

    async def _summary(self, entry: Entry) -> Summary:
        if entry.has_parts:
            now = await asyncio.to_thread(self._look, entry)
            if now is not None:
                return running(now)
        async with self._room:
            return await self._desk.do(summarize, entry.path)

    def _look(self, entry: Entry) -> Live | None:
        """A running run as it is now, of which only what is new is read; None when it does not run."""
        snapshots = self._followed.setdefault(entry.id, api.follow(entry.path))
        try:
            now = next(snapshots, None)
        except Exception:  # whatever it is, reading the whole run will tell
            now = None
        if now is None or now.state is not RunState.RUNNING:
            self._followed.pop(entry.id, None)
            return None
        return now
