"""Ctrl-C at any moment ends in the exit code that says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CAUGHT = """
import unstarve.cli.app
from unstarve.cli import main
from unstarve.errors import StoppedError

def app(**_):
    try:
        exec("raise KeyboardInterrupt")  # as while a module is imported that makes a dataclass
    except KeyboardInterrupt:
        raise StoppedError("stopped from the keyboard")

unstarve.cli.app.app = app
main(["bench"])
"""


def test_an_interrupt_that_was_caught_inside_of_exec_does_not_end_python_by_a_signal(tmp_path: Path) -> None:
    (tmp_path / "caught.py").write_text(CAUGHT)
    command = [sys.executable, "-m", "caught"]  # only a module run this way is ended by the signal
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "unstarve: stopped from the keyboard\n")
