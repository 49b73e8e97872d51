from __future__ import annotations

import pytest

from unstarve.fixes.datasets.images import image_codec
from unstarve.native import native


@pytest.fixture(params=["native", "pillow"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with the native decoder and with Pillow."""
    if request.param == "pillow":
        monkeypatch.setattr(image_codec, "native", lambda: None)
    elif not hasattr(native(), "decode_cuts"):
        pytest.skip("built without libjpeg-turbo")
    return str(request.param)
