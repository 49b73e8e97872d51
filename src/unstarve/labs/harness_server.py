"""Forks a process for each harness that the check asks for; see `harness_process`.

    python -m unstarve.labs.harness_server

Reads requests from stdin and writes answers to stdout, a line of JSON each.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

import unstarve
from unstarve.labs import harness

_LOOK_S = 0.01
_LEAVE_S = 5
"""How long a process has, once it has answered, to end its workers."""
_NEEDED = (harness, np, psutil, torch.utils.data, unstarve.DataLoader, unstarve.CachedDataset)
"""Imported once, so that no version pays for it. What is in here must not be changed by a run."""


def main() -> None:
    """Answer until nobody asks any more."""
    answers = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)  # whatever the learner's code prints
    gc.freeze()  # or else a collection in a fork would copy every page
    for line in iter(sys.stdin.readline, ""):
        answers.write(_answer(*json.loads(line)) + "\n")
        answers.flush()


def _answer(module: str, file: str, arguments: list[Any]) -> str:
    """What a fork answers; or how it ended, if it ended without."""
    reading, writing = os.pipe()
    fork = os.fork()
    if not fork:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.write(writing, json.dumps(_measured(module, Path(file), arguments)).encode() + b"\n")
        atexit._run_exitfuncs()
        os._exit(0)  # to take torch apart in order takes longer than some runs
    os.close(writing)
    said, ended = b"", None
    while not said.endswith(b"\n"):
        # Workers may outlive the fork and keep the pipe open, so its end says nothing.
        ready = select.select([reading, sys.stdin], [], [], _LOOK_S)[0]
        if reading in ready and (part := os.read(reading, 1 << 20)):
            said += part
        elif sys.stdin in ready or ended is not None:  # the check is gone, or the fork is
            break
        else:
            ended = _ended(fork)
    os.close(reading)
    until = time.monotonic() + (_LEAVE_S if said else 0)
    while ended is None and time.monotonic() < until:
        time.sleep(_LOOK_S)
        ended = _ended(fork)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(fork, signal.SIGKILL)
    if ended is None:
        os.waitpid(fork, 0)
    by = "" if ended is None else f" by signal {-ended}" if ended < 0 else f" with exit code {ended}"
    return said.decode().strip() or json.dumps({"failed": f"its process ended{by}"})


def _ended(fork: int) -> int | None:
    """The exit code, less than 0 for a signal; None while it runs."""
    found, status = os.waitpid(fork, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _measured(module: str, file: Path, arguments: list[Any]) -> dict[str, Any]:
    torch.set_num_threads(1)
    folder = file if file.is_dir() else file.parent
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        return {"measured": importlib.import_module(module).run(file, *arguments)}
    except BaseException as error:  # sys.exit() in the learner's file is a failure, too
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler raises again for a worker that died
        lines = "".join(traceback.format_exception_only(error)).strip().splitlines()
        return {"failed": lines[-1]}


if __name__ == "__main__":
    main()
