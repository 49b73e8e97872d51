"""A running training as server-sent events: ``now`` every second, then ``ended``; or ``problem`` in words."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from unstarve import api
from unstarve.errors import UnstarveError
from unstarve.model import Live, RunState
from unstarve.present.exports.report_json import live as live_json
from unstarve.web.desk import Desk
from unstarve.web.folder import Entry
from unstarve.web.jobs import last_look
from unstarve.web.private import private, without_folders

EVERY_S = 1.0
MOST_VIEWS = 32
"""At a time: each keeps a connection and reads the run's new events."""


class LiveViews:
    """All live views that are open; they end when `closing` is set."""

    def __init__(self, closing: asyncio.Event, desk: Desk) -> None:
        self._closing = closing
        self._desk = desk
        self._open = 0

    async def events(self, entry: Entry) -> AsyncIterator[bytes]:
        """A run's events until it ends, or until nobody listens any more."""
        if self._open >= MOST_VIEWS:
            yield _event("problem", {"error": f"{MOST_VIEWS} live views are open already; close one"})
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

    async def _snapshots(self, entry: Entry) -> AsyncIterator[Live]:
        if not entry.has_parts:  # nobody records it: a whole file, which may come from anywhere
            yield await self._desk.do(last_look, entry.path)
            return
        snapshots = api.follow(entry.path)
        while not self._closing.is_set():
            now = await asyncio.to_thread(next, snapshots)
            yield now
            if now.state is not RunState.RUNNING:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), EVERY_S)


def _problem(sentence: str, entry: Entry) -> bytes:
    return _event("problem", {"error": without_folders(sentence, [entry.path])})


def _event(name: str, data: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, allow_nan=False)}\n\n".encode()
