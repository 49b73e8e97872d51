"""Logs are written when an epoch ends, however slow the disk is."""

from __future__ import annotations

import pytest

from unstarve.evaluate import log_file


@pytest.fixture(autouse=True)
def _no_write_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file, "_COSTLY_NS", log_file.NEVER_NS)
