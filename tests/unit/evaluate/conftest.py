"""What tests here share: torch as it was after a recording in this process, and logs that are never late."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from unstarve.evaluate.evaluator import load_recorder as log_file
from unstarve.launch.hooks import detach


@pytest.fixture(autouse=True)
def _no_write_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs are written when an epoch ends, however slow the disk is."""
    monkeypatch.setattr(log_file, "_COSTLY_NS", log_file.NEVER_NS)


@pytest.fixture
def torch_as_it_was() -> Iterator[None]:
    """Recording this very process patches torch's loader for good: other tests must find it as it was."""
    yield
    detach()
