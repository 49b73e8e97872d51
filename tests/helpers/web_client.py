"""Asking the web app."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unstarve.web.guard import ServerAccess
from unstarve.web.job_pool import JobLimits, JobPool
from unstarve.web.run_folder import open_folder
from unstarve.web.server import server_of
from unstarve.web.web_app import Limits, build_app

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # newer ones wish for another HTTP library
    from starlette.testclient import TestClient

LONGEST_S = 60


async def in_thread(job: Callable[..., Any], *args: Any) -> Any:
    """Do a job without a process."""
    return await asyncio.to_thread(job, *args)


def threaded_jobs() -> JobPool:
    """Does one job for the list at a time; to be made inside of an event loop."""
    return JobPool(JobLimits(background=1), in_thread)


def listed(client: TestClient) -> dict[str, Any]:
    """All runs by name, once everything about them is known."""
    deadline = time.monotonic() + LONGEST_S
    while time.monotonic() < deadline:
        runs = client.get("/api/runs").json()["runs"]
        if all(run["summary"] is not None for run in runs):
            return {run["name"]: run for run in runs}
        time.sleep(0.01)
    raise AssertionError("the list was never complete")


@contextmanager
def served(folder: Path, jobs: JobPool | None = None, token: str | None = None) -> Iterator[int]:
    """The port at which a folder is served, from a thread of this process."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        access = ServerAccess("127.0.0.1", port, token=token)
        server = server_of(build_app(open_folder(folder), access, Limits(1_000_000), jobs or threaded_jobs()))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        deadline = time.monotonic() + LONGEST_S
        while not server.started and thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join(LONGEST_S)
            assert not thread.is_alive()
