"""Claims about in-memory engines and about files hold for compiled code and for its Python twin."""

from __future__ import annotations

import pytest

from unstarve.fixes.io import formats, reading
from unstarve.fixes.loader.engines import gathered_batches
from unstarve.fixes.samples import gather as gather_module
from unstarve.native import native, why_not_native

needs_native = pytest.mark.skipif(native() is None, reason=f"native: {why_not_native()}")


@pytest.fixture(params=[pytest.param("native", marks=needs_native), "twin"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "twin":
        monkeypatch.setattr(gather_module, "native", lambda: None)
        monkeypatch.setattr(gathered_batches, "native", lambda: None)
    return str(request.param)


@pytest.fixture(params=[pytest.param("native", marks=needs_native), "twin"])
def readers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "twin":
        monkeypatch.setattr(reading, "native", lambda: None)
        monkeypatch.setattr(formats, "native", lambda: None)
    return str(request.param)
