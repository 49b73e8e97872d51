"""What tests here share: logs that are never late."""

from __future__ import annotations

import pytest

from unstarve.evaluate.evaluator import load_recorder as log_file


@pytest.fixture(autouse=True)
def _no_write_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs are written when an epoch ends, however slow the disk is."""
    monkeypatch.setattr(log_file, "_COSTLY_NS", log_file.NEVER_NS)
