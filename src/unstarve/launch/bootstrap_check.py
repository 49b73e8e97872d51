"""Did unstarve's bootstrap run in the command at all, and if not, why?

The launcher leaves a marker file, and the bootstrap begins by deleting it, which works on a full disk, too.
A marker that is still there means that no Python of the command ran the bootstrap; otherwise the command
merely iterated no loader.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from unstarve.record.format import PART_SUFFIX

VARIABLE = "UNSTARVE_UNSEEN"
_NAME = "python.unseen"
_PYTHON = re.compile(r"python[\d.]*t?(\.exe)?")
_WHY = {
    "I": "ignores PYTHONPATH",
    "E": "ignores PYTHONPATH",
    "S": "skips sitecustomize",
}
_SHEBANG_BYTES = 256


def put_marker(parts: Path) -> dict[str, str]:
    """Create the marker; returns the environment variables by which the bootstrap finds it."""
    marker = parts / _NAME
    try:
        marker.touch()
    except OSError:  # disk full: then nothing is checked
        return {}
    return {VARIABLE: str(marker)}


def why_unseen(parts: Path, argv: Sequence[str]) -> str | None:
    """Why no Python of the command ran the bootstrap, in a sentence; None when one did."""
    if not (parts / _NAME).exists() or any(parts.glob(f"*{PART_SUFFIX}")):
        return None
    flag = _isolating_flag([*_shebang(argv[0]), *argv])
    if flag is not None:
        return (
            f"Python ran with -{flag}, which {_WHY[flag]}, so unstarve could not attach to it; "
            f"run it without -{flag}"
        )
    return (
        "unstarve could not attach to any Python process of the command; python -I, -E or -S, an empty "
        "environment (env -i, sudo), a container or another machine would explain it"
    )


def _shebang(command: str) -> list[str]:
    """The words of ``#!/usr/bin/python3 -I``; none where the command is not a script."""
    path = shutil.which(command)
    try:
        with Path(path or command).open("rb") as file:
            line = file.read(_SHEBANG_BYTES).split(b"\n", 1)[0]
    except OSError:
        return []
    return line[2:].decode(errors="replace").split() if line.startswith(b"#!") else []


def _isolating_flag(words: Sequence[str]) -> str | None:
    """The first option of a Python among the words that keeps the bootstrap from running."""
    for place, word in enumerate(words):
        if _PYTHON.fullmatch(Path(word).name):
            found = next((letter for letter in _options(words[place + 1 :]) if letter in _WHY), None)
            if found is not None:
                return found
    return None


def _options(words: Sequence[str]) -> Iterator[str]:
    """Python's own options as letters, up to the script.

    >>> list(_options(["-bI", "-W", "error", "-Xdev", "train.py", "-E"]))
    ['b', 'I', 'W', 'X']
    """
    following = iter(words)
    for word in following:
        if not word.startswith("-") or word in ("-", "--"):
            return
        if word == "--check-hash-based-pycs":
            next(following, None)
        for place, letter in enumerate(word[1:] if not word.startswith("--") else "", 2):
            yield letter
            if letter in "cm":
                return
            if letter in "WX":  # takes the rest of the word, or the next one
                if place == len(word):
                    next(following, None)
                break
