"""`unstarve serve` as a process: it listens, and Ctrl-C ends it with everything it started."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE

import httpx
import psutil
import pytest

from clocked_runs import write_run
from unstarve.record.run_file import discard

UNSTARVE = Path(sys.executable).with_name("unstarve")
LONGEST_S = 120


class Server:
    """The process and where it listens."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.said = process.stdout.readline()
        found = re.search(r":(\d+)/(\S*)", self.said)
        assert found is not None, self.said
        self.rest = found[2]
        self.web = httpx.Client(base_url=f"http://127.0.0.1:{found[1]}", timeout=LONGEST_S, trust_env=False)

    def come_in(self) -> None:
        """Open the printed address: from then on a cookie holds the token."""
        first = self.web.get(f"/{self.rest}")
        assert (first.status_code, first.headers["location"]) == (303, "/")

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    started: list[subprocess.Popen[str]] = []
    servers: list[Server] = []

    def begin(*options: str) -> Server:
        command = [str(UNSTARVE), "serve", str(tmp_path), "--port", "0", *options]
        started.append(subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True, start_new_session=True))
        servers.append(Server(started[-1]))
        return servers[-1]

    yield begin
    for server in servers:
        server.web.close()
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_with_an_open_live_view_and_leaves_no_process(
    start: Callable[..., Server], tmp_path: Path, number: signal.Signals
) -> None:
    write_run(tmp_path / "done.unstarve")
    now = write_run(tmp_path / "now.unstarve", end=False)
    server = start()
    server.come_in()
    with server.web.stream("GET", "/api/runs/now.unstarve/live") as view:
        lines = view.iter_lines()
        assert next(lines) == "event: now"
        # A process works out the page, so that there is one to be ended.
        assert server.web.get("/run/done.unstarve").status_code == 200
        children = server.children()
        assert children
        if number == signal.SIGINT:
            os.killpg(server.process.pid, number)  # a terminal tells the whole group
        else:
            server.process.send_signal(number)
        _, errors = server.process.communicate(timeout=LONGEST_S)
        assert server.process.returncode == (0 if number == signal.SIGINT else -number)
        assert errors == ""
        with contextlib.suppress(httpx.HTTPError):
            list(lines)  # what was on its way; the stream ends
    assert psutil.wait_procs(children, LONGEST_S)[1] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "done.unstarve",
        "now.unstarve",
        "now.unstarve.parts",
    ]
    discard(now)


def test_jobs_end_when_the_server_is_killed(start: Callable[..., Server], tmp_path: Path) -> None:
    write_run(tmp_path / "done.unstarve")
    server = start()
    server.come_in()
    assert server.web.get("/run/done.unstarve").status_code == 200
    children = server.children()
    server.process.kill()
    assert psutil.wait_procs(children, LONGEST_S)[1] == []


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_token_that_is_printed_is_needed_and_nobody_else_can_read_it(
    start: Callable[..., Server], host: str
) -> None:
    server = start("--host", host)
    assert re.fullmatch(r"\?token=[\w-]{40,}", server.rest)
    assert server.web.get("/api/runs").status_code == 401
    server.come_in()
    assert server.web.get("/api/runs").json()["runs"] == []
    token = server.rest.removeprefix("?token=")
    everyone = [psutil.Process(server.process.pid), *server.children()]
    assert not any(token in word for process in everyone for word in process.cmdline())


def test_a_script_gives_its_own_token_in_the_environment(
    start: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSTARVE_SERVE_TOKEN", "from-the-environment")
    server = start()
    assert server.rest == "?token=from-the-environment"
    bearer = {"authorization": "Bearer from-the-environment"}
    assert server.web.get("/api/runs", headers=bearer).status_code == 200


def test_who_wants_no_token_is_told_who_can_come_in(start: Callable[..., Server]) -> None:
    server = start("--no-token")
    assert server.rest == ""
    assert server.web.get("/api/runs").status_code == 200
    server.process.send_signal(signal.SIGINT)
    _, errors = server.process.communicate(timeout=LONGEST_S)
    assert "anyone logged in on this machine" in errors
