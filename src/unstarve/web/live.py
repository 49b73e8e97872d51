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
from unstarve.present.json import live as live_json
from unstarve.web.folder import Entry

EVERY_S = 1.0
MOST_VIEWS = 32
"""At a time: each keeps a connection and reads the run's new events."""


class LiveViews:
    """All live views that are open; they end when `closing` is set."""

    def __init__(self, closing: asyncio.Event) -> None:
        self._closing = closing
        self._open = 0

    async def events(self, entry: Entry) -> AsyncIterator[bytes]:
        """A run's events until it ends, or until nobody listens any more."""
        if self._open >= MOST_VIEWS:
            yield _event("problem", {"error": f"{MOST_VIEWS} live views are open already; close one"})
            return
        self._open += 1
        try:
            async for event in self._follow(entry):
                yield event
        finally:
            self._open -= 1

    async def _follow(self, entry: Entry) -> AsyncIterator[bytes]:
        snapshots = api.follow(entry.path)
        while not self._closing.is_set():
            try:
                now = await asyncio.to_thread(next, snapshots)
                event = _event("now", _shown(now, entry))
            except UnstarveError as error:
                yield _event("problem", {"error": str(error).replace(str(entry.path), entry.name)})
                return
            except Exception as error:  # a file may hold anything; the server goes on
                yield _event("problem", {"error": f"this run cannot be followed: {error!r}"})
                return
            yield event
            if now.state is not RunState.RUNNING:
                yield _event("ended", {})
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), EVERY_S)


def _shown(now: Live, entry: Entry) -> dict[str, Any]:
    return live_json(now) | {"path": entry.name}  # no need to tell where on this machine it lies


def _event(name: str, data: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, allow_nan=False)}\n\n".encode()
