"""Ports, hosts and what is missing: said in one sentence."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from unstarve.cli import main
from unstarve.errors import UsageError
from unstarve.web.guard import ServerAccess
from unstarve.web.server import ServeOptions, serve


def never(access: ServerAccess) -> None:
    raise AssertionError(f"it serves at {access}")


def test_a_taken_port_is_reported_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit) as left:
            main(["serve", str(tmp_path), "--port", str(port)])
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert said == (
        f"unstarve: cannot serve on 127.0.0.1:{port}: another program uses that port; "
        "choose another with --port (0: any free one)\n"
    )


def test_a_foreign_host_and_a_missing_folder_are_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="192\\.0\\.2\\.1"):  # reserved for examples
        serve(ServeOptions(tmp_path, host="192.0.2.1", port=0), never)
    with pytest.raises(UsageError, match="not a folder"):
        serve(ServeOptions(tmp_path / "none"), never)


def test_a_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "unstarve.web.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(SystemExit) as left:
        main(["serve", str(tmp_path)])
    assert left.value.code == 2
    assert "pip install 'unstarve[web]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "token", ["short", "with space in it now", "semi;colon;semi;colon", "é" * 20, "a" * 201]
)
def test_a_token_that_is_too_short_or_needs_quoting_is_refused(tmp_path: Path, token: str) -> None:
    with pytest.raises(UsageError, match="16 to 200 letters"):
        serve(ServeOptions(tmp_path, port=0, token=token), never)


def test_no_token_is_allowed_only_on_loopback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--host", "0.0.0.0"], ["--token", "a" * 20]):
        with pytest.raises(SystemExit) as left:
            main(["serve", str(tmp_path), "--port", "0", "--no-token", *words])
        assert left.value.code == 2
        assert "--no-token" in capsys.readouterr().err
