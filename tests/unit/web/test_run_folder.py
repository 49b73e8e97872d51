"""The list of runs, their pages, deleting: what the server says about a folder."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from clocked_runs import write_run
from unstarve.errors import NoSuchRunError
from unstarve.record import format as f
from unstarve.record.run_file import discard, parts_folder
from unstarve.record.writer import meta_chunk
from unstarve.web.job_pool import JobLimits, JobPool
from unstarve.web.run_folder import open_folder
from web_client import LONGEST_S, TestClient, in_thread, listed

HOSTILE = '<img src=x onerror="broken()">&amp;\u2028.unstarve'


def test_every_run_has_its_state_cause_and_numbers(client: TestClient, folder: Path) -> None:
    write_run(folder / "slow.unstarve", steps=60, wait_ms=6, step_ms=4)
    write_run(folder / "good.unstarve", steps=60, wait_ms=0, step_ms=10)
    runs = listed(client)
    slow, good = runs["slow.unstarve"]["summary"], runs["good.unstarve"]["summary"]
    assert (slow["state"], slow["cause"], slow["steps"]) == ("starved", "cpu", 60)
    assert slow["steps_per_s"] == pytest.approx(100)
    assert slow["samples_per_s"] == pytest.approx(800)
    assert slow["headroom"] == pytest.approx(2.5)
    assert slow["started_at"] > 0
    assert good["state"] == "fed"


def test_only_run_files_are_listed_and_no_folder_above_or_below(client: TestClient, folder: Path) -> None:
    for place in (folder.parent / "above.unstarve", folder / ".hidden.unstarve", folder / "notes.txt"):
        place.write_bytes(b"x")
    (folder / "below.unstarve").mkdir()
    os.mkfifo(folder / "pipe.unstarve")
    assert listed(client) == {}


def test_a_damaged_run_is_called_unreadable_and_breaks_nothing(client: TestClient, folder: Path) -> None:
    whole = write_run(folder / "whole.unstarve").read_bytes()
    launch = {"command": 7, "kind": [], "started_at": "noon", "pid": {}, "host": None}
    (folder / "empty.unstarve").write_bytes(b"")
    (folder / "other.unstarve").write_bytes(b"something else")
    (folder / "newer.unstarve").write_bytes(f.HEADER.pack(f.MAGIC, 99, 0, 0))
    (folder / "types.unstarve").write_bytes(f.header() + meta_chunk(0, "launch", launch))
    (folder / "cut.unstarve").write_bytes(whole[: len(whole) * 2 // 3])
    runs = listed(client)
    assert runs["whole.unstarve"]["summary"]["state"] == "starved"
    for name in ("empty", "other", "newer", "types"):
        assert runs[f"{name}.unstarve"]["summary"]["state"] == "unreadable"
        answer = client.get(f"/run/{name}.unstarve")
        assert answer.status_code == 422
        assert str(folder) not in answer.text
    assert "newer unstarve" in runs["newer.unstarve"]["summary"]["headline"]
    assert runs["cut.unstarve"]["summary"]["state"] in ("starved", "inconclusive")


def test_hostile_and_undecodable_names_can_be_opened_and_deleted(client: TestClient, folder: Path) -> None:
    plain = write_run(folder / "a.unstarve", command=["train.py", "\ud800</script>"]).read_bytes()
    names = [
        os.fsencode(HOSTILE),
        b"\xff.unstarve",
        b"a b%2e#?.unstarve",
        b"~20.unstarve",
        b"...unstarve "[:-1],
    ]
    for name in names[:4]:
        Path(os.fsdecode(bytes(folder) + b"/" + name)).write_bytes(plain)
    runs = listed(client)
    assert len(runs) == 5
    assert HOSTILE in runs
    for run in runs.values():
        assert run["id"].isascii()
        assert client.get(f"/run/{run['id']}").status_code == 200
        assert client.delete(f"/api/runs/{run['id']}").status_code == 204
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "run_id",
    ["../above.unstarve", "..%2fabove.unstarve", "%2e%2e/above.unstarve", "..~2fabove.unstarve",
     "..\\above.unstarve", "%00", "below~2finner.unstarve", "a.unstarve.parts", ".", "~"],
)  # fmt: skip
def test_an_id_is_never_a_path(client: TestClient, folder: Path, run_id: str) -> None:
    write_run(folder / "a.unstarve")
    (folder / "below").mkdir()
    outside = [write_run(folder.parent / "above.unstarve"), write_run(folder / "below" / "inner.unstarve")]
    with pytest.raises(NoSuchRunError):
        open_folder(folder).find(unquote(run_id))
    assert client.get(f"/run/{run_id}").status_code == 404
    assert client.get("/compare", params={"a": run_id, "b": "a.unstarve"}).status_code == 404
    assert client.delete(f"/api/runs/{run_id}").status_code in (404, 405)
    assert all(path.exists() for path in outside)


def test_reports_and_comparisons_link_back_and_may_run_only_their_own_script(
    client: TestClient, folder: Path
) -> None:
    write_run(folder / "a.unstarve")
    write_run(folder / "b.unstarve", wait_ms=1)
    for address in ("/run/a.unstarve", "/compare?a=a.unstarve&b=b.unstarve"):
        answer = client.get(address)
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "'unsafe" not in policy
        assert "script-src 'sha256-" in policy
        assert "frame-ancestors 'none'" in policy
    assert client.get("/compare?a=a.unstarve").status_code == 404


def test_the_list_answers_at_once_and_fills_in(client_for: Callable[..., TestClient], folder: Path) -> None:
    go = threading.Event()

    async def do_when_told(job: Callable[..., Any], *args: Any) -> Any:
        assert await asyncio.to_thread(go.wait, LONGEST_S)
        return await in_thread(job, *args)

    client = client_for(jobs=JobPool(JobLimits(background=2), do_when_told))
    for number in range(200):
        (folder / f"{number}.unstarve").write_bytes(b"x")
    write_run(folder / "good.unstarve")
    runs = client.get("/api/runs").json()["runs"]
    assert len(runs) == 201
    assert all(run["summary"] is None and run["stale"] for run in runs)
    go.set()
    assert listed(client)["good.unstarve"]["summary"]["state"] == "starved"


def test_a_run_is_analysed_once_and_again_when_it_changes(
    client_for: Callable[..., TestClient], folder: Path
) -> None:
    done: list[str] = []

    async def do_and_count(job: Callable[..., Any], path: Path) -> Any:
        done.append(path.name)
        return await in_thread(job, path)

    client = client_for(jobs=JobPool(JobLimits(background=1), do_and_count))
    path = write_run(folder / "a.unstarve")
    assert listed(client)["a.unstarve"]["summary"]["state"] == "starved"
    listed(client)
    assert done == ["a.unstarve"]
    path.unlink()
    write_run(path, wait_ms=0, step_ms=10, steps=61)
    deadline = time.monotonic() + LONGEST_S
    while listed(client)["a.unstarve"]["stale"]:
        assert time.monotonic() < deadline
    assert listed(client)["a.unstarve"]["summary"]["state"] == "fed"
    assert done == ["a.unstarve"] * 2


def test_a_run_that_is_being_recorded_is_running_and_stays(client: TestClient, folder: Path) -> None:
    path = write_run(folder / "now.unstarve", end=False)
    assert listed(client)["now.unstarve"]["summary"]["state"] == "running"
    refused = client.delete("/api/runs/now.unstarve")
    assert refused.status_code == 409
    assert "being recorded" in refused.json()["error"]
    assert path.exists()
    discard(path)


def test_deleting_removes_what_a_killed_recording_left(client: TestClient, folder: Path) -> None:
    path = write_run(folder / "dead.unstarve", end=False)
    path.write_bytes(f.header() + meta_chunk(0, "launch", {"command": [], "kind": "run", "started_at": 1.0}))
    assert parts_folder(path).exists()
    assert client.delete("/api/runs/dead.unstarve").status_code == 204
    assert list(folder.iterdir()) == []
    assert client.delete("/api/runs/dead.unstarve").status_code == 404


def test_a_missing_page_is_reported_to_people_and_to_programs(client: TestClient) -> None:
    for address in ("/run/none", "/nothing", "/compare"):
        assert "<h1>" in client.get(address).text
    assert client.get("/api/none").json() == {"error": "there is nothing at this address"}
    assert client.post("/api/runs").status_code == 405
