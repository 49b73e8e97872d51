"""Asking the web app."""

from __future__ import annotations

import time
import warnings
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # newer ones wish for another HTTP library
    from starlette.testclient import TestClient

LONGEST_S = 60


def listed(client: TestClient) -> dict[str, Any]:
    """All runs by name, once everything about them is known."""
    deadline = time.monotonic() + LONGEST_S
    while time.monotonic() < deadline:
        runs = client.get("/api/runs").json()["runs"]
        if all(run["summary"] is not None for run in runs):
            return {run["name"]: run for run in runs}
        time.sleep(0.01)
    raise AssertionError("the list was never complete")
