"""How a command loads the library that counts file reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from unstarve.launch import io_library


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Path:
    path = Path("/opt/unstarve/_io_shim.so")
    monkeypatch.setattr(io_library, "_library", lambda: path)
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    return path


def test_the_command_loads_the_library_after_what_the_user_preloads(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert io_library.io_environment("/parts") == {"LD_PRELOAD": str(library), "UNSTARVE_IO": "/parts"}
    monkeypatch.setenv("LD_PRELOAD", "/lib/jemalloc.so")
    assert io_library.io_environment("/parts")["LD_PRELOAD"] == f"/lib/jemalloc.so {library}"


def test_a_folder_that_cannot_be_named_is_told(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert io_library.why_not_io() is None
    monkeypatch.setattr(io_library, "_library", lambda: Path("/my programs/_io_shim.so"))
    assert "/my programs/_io_shim.so" in str(io_library.why_not_io())


def test_a_missing_library_and_another_system_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_library, "_library", lambda: None)
    monkeypatch.setattr(io_library, "why_not_native", lambda: "not built: no compiler")
    assert io_library.why_not_io() == "the library that counts file reads is not built: no compiler"
    monkeypatch.setattr(io_library.sys, "platform", "darwin")
    assert io_library.why_not_io() == "file reads are counted on Linux only"
