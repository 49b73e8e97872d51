"""The ``nsys profile`` command for a training: only options that the installed nsys has."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

FORK_OPTION = "--trace-fork-before-exec"
"""Forked workers are invisible without it."""
_OPTIONS = (
    ("--trace", "cuda,nvtx,osrt"),
    (FORK_OPTION, "true"),
    ("--osrt-file-access", "true"),
    ("--pytorch", "autograd-nvtx"),
    ("--python-sampling", "true"),
    ("--sample", "process-tree"),
    ("--export", "sqlite"),
    ("--force-overwrite", "true"),
)
"""The third and fourth came in 2025."""
_LONGEST_S = 60


def find_nsys() -> str | None:
    """The installed nsys; None when there is none."""
    return shutil.which("nsys")


def options_of(nsys: str) -> str:
    """What ``nsys profile --help`` says; empty when it says nothing."""
    try:
        said = subprocess.run(
            [nsys, "profile", "--help"], capture_output=True, text=True, timeout=_LONGEST_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout + said.stderr


def nsys_command(command: Sequence[str], output: str, known: str | None) -> list[str]:
    """The command that profiles `command` into ``output.sqlite``.

    `known` is the help text of the nsys that will run it; None stands for the newest.
    """
    chosen = [
        f"{name}={value}"
        for name, value in _OPTIONS
        if known is None or f"{name}=" in known or f"{name} " in known
    ]
    return ["nsys", "profile", *chosen, f"--output={output}", *command]
