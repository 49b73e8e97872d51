"""Runs harnesses: modules that run a file of the learner's and return what they measured.

A harness defines ``run(file, *arguments)``. It runs in a fork of a server that has imported torch already, so
that a check has time for more rounds. What it returns comes back over a pipe: nothing that the learner's file
prints counts as a measurement.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

_LONGEST_S = 120
_PATIENCE_S = 10


def told_by(module: str, file: Path, *arguments: object) -> dict[str, Any] | str:
    """What `module` measured with this file; a sentence that says why there is nothing."""
    server = _running()
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        server.stdin.write(json.dumps([module, str(file.absolute()), arguments]) + "\n")
        server.stdin.flush()
        if not select.select([server.stdout], [], [], _LONGEST_S)[0]:
            _stop()
            return f"{file.name} did not finish within {_LONGEST_S} seconds."
        answer = server.stdout.readline()
        told = json.loads(answer or '{"failed": "its process was ended"}')
    except BaseException:  # Ctrl-C, too: the server would answer the next question with this one's result
        _stop()
        raise
    if not answer:
        _stop()
    result: dict[str, Any] | None = told.get("measured")
    return f"{file.name} failed: {told['failed']}" if result is None else result


_server: subprocess.Popen[str] | None = None


def _running() -> subprocess.Popen[str]:
    """The server; it starts with the first harness and ends with this process."""
    global _server
    if _server is None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("UNSTARVE_")}
        _server = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "unstarve.labs.harness_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            start_new_session=True,  # Ctrl-C is this process's business
        )
    return _server


@atexit.register
def _stop() -> None:
    """End the server, which ends what it runs."""
    global _server
    if _server is not None:
        try:
            _server.communicate(timeout=_PATIENCE_S)  # closes its stdin
        except subprocess.TimeoutExpired:
            _server.kill()
            _server.communicate()
        _server = None
