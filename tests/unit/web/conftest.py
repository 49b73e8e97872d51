"""The app on a folder of runs, without a port; jobs are done in a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from unstarve.web.guard import ServerAccess
from unstarve.web.job_pool import JobPool
from unstarve.web.run_folder import open_folder
from unstarve.web.web_app import Limits, build_app
from web_client import TestClient, threaded_jobs

LOCAL = ServerAccess("127.0.0.1", 5000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the runs lie: a folder among others."""
    path = tmp_path / "runs"
    path.mkdir()
    return path


@pytest.fixture
def client_for(folder: Path) -> Iterator[Callable[..., TestClient]]:
    """A browser's side of the app, for whoever may come in."""
    opened: list[TestClient] = []

    def make(
        access: ServerAccess = LOCAL, upload_bytes: int = 1_000_000, jobs: JobPool | None = None
    ) -> TestClient:
        app = build_app(open_folder(folder), access, Limits(upload_bytes), jobs or threaded_jobs())
        client = TestClient(app, base_url="http://127.0.0.1:5000", follow_redirects=False)
        client.__enter__()
        opened.append(client)
        return client

    yield make
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def client(client_for: Callable[..., TestClient]) -> TestClient:
    return client_for()
