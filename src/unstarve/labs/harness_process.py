"""Runs a harness: a process that takes a file of the learner's and prints what it measured, as one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from unstarve.labs.lab import RESULT_MARK

_LONGEST_S = 120


def told_by(module: str, file: Path, *arguments: object) -> dict[str, Any] | str:
    """What ``python -m module file arguments`` measured; a sentence that says why there is nothing."""
    command = [sys.executable, "-m", module, str(file), *map(str, arguments)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("UNSTARVE_")}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_LONGEST_S, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{file.name} did not finish within {_LONGEST_S} seconds."
    told = [line for line in done.stdout.splitlines() if line.startswith(RESULT_MARK)]
    if done.returncode or not told:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        return f"{file.name} failed: {last}"
    result: dict[str, Any] = json.loads(told[-1].removeprefix(RESULT_MARK))
    return result
