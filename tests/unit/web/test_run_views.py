"""A running training as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clocked_runs import write_run
from unstarve.record.run_file import discard, finish
from unstarve.web import run_views
from unstarve.web.run_folder import open_folder
from web_client import TestClient, threaded_jobs


def told(stream: bytes) -> list[tuple[str, Any]]:
    """Names and data of events."""
    blocks = [block.split("\n") for block in stream.decode().split("\n\n") if block]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]


async def first(events: AsyncIterator[bytes]) -> bytes:
    async for event in events:
        return event
    return b""


def test_a_live_view_follows_a_run_to_its_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_views, "EVERY_S", 0.001)
    path = write_run(folder / "now.unstarve", steps=30, end=False)
    entry = open_folder(folder).find("now.unstarve")

    async def watch() -> bytes:
        views, heard = run_views.LiveViews(asyncio.Event(), threaded_jobs()), b""
        async for event in views.events(entry):
            heard += event
            if heard.count(b"event: now") == 2:
                finish(path, 0)
        return heard

    events = told(asyncio.run(watch()))
    assert [name for name, _ in events[:2]] == ["now", "now"]
    assert events[-1] == ("ended", {})
    now, last = events[0][1], events[-2][1]
    assert (now["state"], now["steps"], now["path"]) == ("running", 30, "now.unstarve")
    assert (last["state"], last["exit_code"]) == ("finished", 0)


def test_all_views_end_when_the_server_does(folder: Path) -> None:
    path = write_run(folder / "now.unstarve", end=False)
    entry = open_folder(folder).find("now.unstarve")

    async def watch() -> list[bytes]:
        closing = asyncio.Event()
        views, heard = run_views.LiveViews(closing, threaded_jobs()), []
        async for event in views.events(entry):  # would go on for as long as the run does
            heard.append(event)
            closing.set()
        return heard

    assert [name for name, _ in told(b"".join(asyncio.run(watch())))] == ["now"]
    discard(path)


def test_too_many_live_views_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_views, "MOST_VIEWS", 1)
    path = write_run(folder / "now.unstarve", end=False)
    entry = open_folder(folder).find("now.unstarve")

    async def watch() -> list[str]:
        views = run_views.LiveViews(asyncio.Event(), threaded_jobs())
        one = views.events(entry)
        names = [told(await first(one))[0][0], told(await first(views.events(entry)))[0][0]]
        await one.aclose()  # type: ignore[attr-defined]
        return [*names, told(await first(views.events(entry)))[0][0]]

    assert asyncio.run(watch()) == ["now", "problem", "now"]
    discard(path)


def test_a_run_that_cannot_be_followed_says_why_and_the_server_goes_on(
    client: TestClient, folder: Path
) -> None:
    (folder / "bad.unstarve").write_bytes(b"something else" * 9)
    ((name, said),) = told(client.get("/api/runs/bad.unstarve/live").content)
    assert name == "problem"
    assert "not an unstarve run file" in said["error"]
    assert str(folder) not in said["error"]
    assert client.get("/api/runs/none.unstarve/live").status_code == 404
    write_run(folder / "done.unstarve")
    answer = client.get("/api/runs/done.unstarve/live")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [name for name, _ in told(answer.content)] == ["now", "ended"]
