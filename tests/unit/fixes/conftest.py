"""Claims about in-memory engines and about files hold for native code and for its fallback."""

from __future__ import annotations

import pytest

from unstarve.fixes.datasets.files import tensor_file_dataset
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


@pytest.fixture(params=[pytest.param("native", marks=needs_native), "fallback"])
def readers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "fallback":
        for module in (reading, formats, tensor_file_dataset):
            monkeypatch.setattr(module, "native", lambda: None)
    return str(request.param)
