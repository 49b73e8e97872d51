"""Ports, hosts and what is missing: said in one sentence."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from unstarve.cli import main
from unstarve.errors import UsageError
from unstarve.web.server import Wishes, serve


def never(address: str) -> None:
    raise AssertionError(f"it serves at {address}")


def test_a_port_that_is_taken_is_said_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit) as left:
            main(["serve", str(tmp_path), "--port", str(port)])
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert said == (
        f"unstarve: cannot serve on 127.0.0.1:{port}: another program has that port; "
        "take another with --port, or any with --port 0\n"
    )


def test_a_host_that_is_not_ours_and_a_folder_that_is_none_are_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="192\\.0\\.2\\.1"):  # reserved for examples
        serve(Wishes(tmp_path, host="192.0.2.1", port=0), never)
    with pytest.raises(UsageError, match="not a folder"):
        serve(Wishes(tmp_path / "none"), never)


def test_without_the_extra_its_name_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "unstarve.web.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(SystemExit) as left:
        main(["serve", str(tmp_path)])
    assert left.value.code == 2
    assert "pip install 'unstarve[web]'" in capsys.readouterr().err
