"""Who leaves before the answer is there takes the work along, and what was half uploaded."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from clocked_runs import write_run
from unstarve.web.job_pool import JobLimits, JobPool
from web_client import LONGEST_S, in_thread, served


class Endless:
    """Does jobs about ``slow.unstarve`` for ever, until they are cancelled."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.cancelled = threading.Event()

    async def __call__(self, job: Callable[..., Any], *args: Any) -> Any:
        if args[0].name != "slow.unstarve":
            return await in_thread(job, *args)
        try:
            self.begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def ask(port: int, request: bytes) -> socket.socket:
    """A connection on which this was asked."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(request)
    return connection


def test_a_page_is_abandoned_when_its_client_leaves_and_others_are_answered(folder: Path) -> None:
    write_run(folder / "slow.unstarve")
    write_run(folder / "done.unstarve")
    doer = Endless()
    request = b"GET /run/slow.unstarve HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with served(folder, JobPool(JobLimits(background=1), doer)) as port:
        first, second = ask(port, request), ask(port, request)
        assert doer.begun.wait(LONGEST_S)
        page = httpx.get(f"http://127.0.0.1:{port}/run/done.unstarve", trust_env=False, timeout=LONGEST_S)
        assert page.status_code == 200
        first.close()
        again = httpx.get(f"http://127.0.0.1:{port}/run/done.unstarve", trust_env=False, timeout=LONGEST_S)
        assert again.status_code == 200
        assert not doer.cancelled.is_set()
        second.close()
        assert doer.cancelled.wait(LONGEST_S)


def test_half_an_upload_leaves_nothing(folder: Path) -> None:
    head = b"PUT /api/runs?name=a.unstarve HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    with served(folder) as port:
        connection = ask(port, head + b"x" * 10)
        deadline = time.monotonic() + LONGEST_S
        while not list(folder.iterdir()):
            assert time.monotonic() < deadline
        connection.close()
        while list(folder.iterdir()):
            assert time.monotonic() < deadline
