"""The hot paths of collection exist twice: the same claims hold for both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tapped import Recording
from unstarve.collect import counters, fetching, receiving
from unstarve.collect import tap as loader
from unstarve.collect import wait_rows as waits
from unstarve.native import native, why_not_native
from unstarve.record import writer


@pytest.fixture(params=["native", "twin"])
def variant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Which of the two is at work."""
    if request.param == "native" and native() is None:
        pytest.skip(why_not_native() or "")
    if request.param == "twin":
        monkeypatch.setattr(counters, "Counters", counters.PythonCounters)
        for module, name, twin in (
            (writer, "Ledger", writer.PythonLedger),
            (waits, "Wait", waits.PythonWait),
            (loader, "Wait", waits.PythonWait),
            (waits, "Work", waits.PythonWork),
            (fetching, "Work", waits.PythonWork),
            (receiving, "Receiving", receiving.PythonReceiving),
        ):
            monkeypatch.setattr(module, name, twin)
    counters._forget_in_child()  # this thread's may have been opened by another test
    yield request.param
    counters._forget_in_child()


@pytest.fixture
def recording(tmp_path: Path, variant: str) -> Iterator[Recording]:
    """A recording by the variant that is at work."""
    recording = Recording(tmp_path / "a.unstarve")
    yield recording
    recording.owner.close()
