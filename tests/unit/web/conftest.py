"""The app on a folder of runs, without a port; jobs are done in a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from unstarve.web.app import Limits, build_app
from unstarve.web.desk import Desk
from unstarve.web.folder import open_folder
from unstarve.web.guard import Access
from web_client import TestClient, desk_of_threads

LOCAL = Access("127.0.0.1", 5000)


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

    def make(access: Access = LOCAL, upload_bytes: int = 1_000_000, desk: Desk | None = None) -> TestClient:
        app = build_app(open_folder(folder), access, Limits(upload_bytes), desk or desk_of_threads())
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
