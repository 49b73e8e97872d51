"""The runs as the pages show them: the list, and live views of running ones.

The list answers at once with what is known; the rest is computed in the background. A live view is a stream
of server-sent events: ``now`` every second, then ``ended``; or ``problem`` with a sentence.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from unstarve import api
from unstarve.errors import ServerBusyError, StoppedError, UnstarveError
from unstarve.model import Live, RunState
from unstarve.present.exports.report_json import live as live_json
from unstarve.web.job_pool import JobPool
from unstarve.web.jobs import RUNNING, UNREADABLE, Summary, last_look, running, summarize
from unstarve.web.private_paths import private, without_folders
from unstarve.web.report_pages import ReportPages
from unstarve.web.run_folder import RunEntry, Stamp

EVERY_S = 1.0
MOST_VIEWS = 32
"""Most live views at a time: each holds a connection and reads the run's new events."""


@dataclass(frozen=True, slots=True)
class RunLine:
    """A run and its summary."""

    entry: RunEntry
    summary: Summary | None
    """None: being computed for the first time."""
    is_stale: bool
    """The run is running or has changed since: a newer summary is being computed."""


class RunList:
    """Summaries of runs, each kept until the run's files change. Belongs to one event loop."""

    def __init__(self, jobs: JobPool, pages: ReportPages) -> None:
        self._jobs = jobs
        self._pages = pages
        self._known: dict[str, tuple[Stamp, Summary]] = {}
        self._computing: dict[str, asyncio.Task[None]] = {}
        self._followed: dict[str, Iterator[Live]] = {}
        self._background = asyncio.Semaphore(jobs.limits.background)

    def lines(self, entries: Sequence[RunEntry]) -> list[RunLine]:
        """One line for each run of the folder, without waiting for any."""
        present = {entry.id: entry for entry in entries}
        self._known = {known: found for known, found in self._known.items() if known in present}
        for followed in list(self._followed):
            if followed not in present or not present[followed].has_parts:
                self._followed.pop(followed, None)
        return [self._line(entry) for entry in entries]

    def close(self) -> None:
        """Stop computing."""
        for task in self._computing.values():
            task.cancel()

    def _line(self, entry: RunEntry) -> RunLine:
        stamp, summary = self._known.get(entry.id, (None, None))
        # A run that is killed leaves its files unchanged, so running ones are always checked again.
        is_stale = stamp != entry.stamp or (summary is not None and summary.state == RUNNING)
        if is_stale and entry.id not in self._computing:
            task = asyncio.get_running_loop().create_task(self._compute(entry))
            self._computing[entry.id] = task
            task.add_done_callback(lambda _: self._computing.pop(entry.id, None))
        return RunLine(entry, summary, is_stale)

    async def _compute(self, entry: RunEntry) -> None:
        try:
            self._known[entry.id] = (entry.stamp, await self._summary(entry))
            async with self._background:
                await self._pages.make_ready(entry)
        except (StoppedError, ServerBusyError):  # not the run's fault; the next request tries again
            return
        except UnstarveError as error:
            self._known[entry.id] = (
                entry.stamp,
                Summary(UNREADABLE, without_folders(str(error), [entry.path])),
            )

    async def _summary(self, entry: RunEntry) -> Summary:
        if entry.has_parts:
            now = await asyncio.to_thread(self._look, entry)
            if now is not None:
                return running(now)
        async with self._background:
            return await self._jobs.do(summarize, entry.path)

    def _look(self, entry: RunEntry) -> Live | None:
        """The run as it is now, reading only what is new; None if it is not running."""
        snapshots = self._followed.setdefault(entry.id, api.follow(entry.path))
        try:
            now = next(snapshots, None)
        except Exception:  # reading the whole run will say what is wrong
            now = None
        if now is None or now.state is not RunState.RUNNING:
            self._followed.pop(entry.id, None)
            return None
        return now


class LiveViews:
    """All open live views; they end when `closing` is set."""

    def __init__(self, closing: asyncio.Event, jobs: JobPool) -> None:
        self._closing = closing
        self._jobs = jobs
        self._open = 0

    async def events(self, entry: RunEntry) -> AsyncIterator[bytes]:
        """A run's events until it ends or the client disconnects."""
        if self._open >= MOST_VIEWS:
            yield _event("problem", {"error": f"{MOST_VIEWS} live views are already open; close one"})
            return
        self._open += 1
        try:
            async for now in self._snapshots(entry):
                yield _event("now", live_json(private(now, [entry.path])))
            if not self._closing.is_set():
                yield _event("ended", {})
        except UnstarveError as error:
            yield _problem(str(error), entry)
        except Exception as error:  # a file may hold anything; the server goes on
            yield _problem(f"this run cannot be followed: {error!r}", entry)
        finally:
            self._open -= 1

    async def _snapshots(self, entry: RunEntry) -> AsyncIterator[Live]:
        if not entry.has_parts:  # not being recorded: a finished file, which may come from anywhere
            yield await self._jobs.do(last_look, entry.path)
            return
        snapshots = api.follow(entry.path)
        while not self._closing.is_set():
            now = await asyncio.to_thread(next, snapshots)
            yield now
            if now.state is not RunState.RUNNING:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), EVERY_S)


def _problem(sentence: str, entry: RunEntry) -> bytes:
    return _event("problem", {"error": without_folders(sentence, [entry.path])})


def _event(name: str, data: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, allow_nan=False)}\n\n".encode()
