"""`unstarve inspect` on processes that unstarve did not start, and on none at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from unstarve.errors import ProcessError
from unstarve.launch import inspect_process
from unstarve.present.terminal.stuck_text import inspection_text

NO_PID = 2**22 + 1
"""Larger than any that Linux gives."""


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that sleeps, with a file open."""
    code = "import sys, time; file = open('data.bin', 'w'); print(flush=True); time.sleep(1000)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=tmp_path)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    with process:
        pass


def test_a_process_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ProcessError, match=f"there is no process {NO_PID}"):
        inspect_process.inspect_process(NO_PID)


def test_the_process_of_another_user_is_an_error(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(
        ProcessError, match=rf"process {sleeper.pid} belongs to .*; run unstarve as .* or as root"
    ):
        inspect_process.inspect_process(sleeper.pid)


def test_without_py_spy_the_kernel_is_asked(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    found = inspect_process.inspect_process(sleeper.pid)
    assert found.source == "/proc"
    assert "pip install py-spy" in (found.note or "")
    (picture,) = found.pictures
    assert picture.training.pid == sleeper.pid
    assert [Path(name).name for name in picture.training.files] == ["data.bin"]
    text = inspection_text(found)
    assert text.startswith(f"  Process (pid {sleeper.pid}) runs ")
    assert "It has open: " in " ".join(text.split())


def fake_spy(folder: Path, body: str) -> None:
    script = folder / "py-spy"
    script.write_text(f"#!{sys.executable}\nimport sys\n{body}")
    script.chmod(0o755)


def test_py_spy_shows_the_stacks(
    sleeper: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("\n\ntime.sleep(1000)\n")
    frames = [{"name": "load", "filename": str(tmp_path / "train.py"), "line": 3}]
    threads = [
        {"pid": sleeper.pid, "thread_name": "MainThread", "os_thread_id": sleeper.pid, "frames": frames}
    ]
    fake_spy(
        tmp_path, f"assert sys.argv[1:4] == ['dump', '--json', '--pid']\nprint({json.dumps(threads)!r})\n"
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    found = inspect_process.inspect_process(sleeper.pid)
    assert (found.source, found.note) == ("py-spy", None)
    place = found.pictures[0].training.place
    assert place is not None
    assert (place.where, place.source) == ("train.py:3", "time.sleep(1000)")


def test_what_py_spy_is_not_allowed_to_do_is_said(
    sleeper: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_spy(tmp_path, "sys.exit('Error: Permission Denied')\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = inspect_process.inspect_process(sleeper.pid)
    assert found.source == "/proc"
    assert "(Error: Permission Denied). It needs the right to trace it" in (found.note or "")
