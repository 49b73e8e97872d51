"""Did unstarve get into the command at all, and if not, why?

The bootstrap takes a mark away as the first thing it does: that works on a full disk, too. A mark that is
still there tells a command whose Python never loaded the bootstrap from one that iterated no loader.
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


def put_mark(parts: Path) -> dict[str, str]:
    """Leave the mark; the environment in which the bootstrap finds it."""
    mark = parts / _NAME
    try:
        mark.touch()
    except OSError:  # no room for it: then it is not missed, either
        return {}
    return {VARIABLE: str(mark)}


def why_unseen(parts: Path, argv: Sequence[str]) -> str | None:
    """Why no Python of the command was seen, in a sentence; None when one was."""
    if not (parts / _NAME).exists() or any(parts.glob(f"*{PART_SUFFIX}")):
        return None
    flag = _isolating_flag([*_shebang(argv[0]), *argv])
    if flag is not None:
        return (
            f"Python ran with -{flag}, which {_WHY[flag]}, so unstarve could not get into it; "
            f"run it without -{flag}"
        )
    return (
        "unstarve got into no Python process of the command; python -I, -E and -S, an emptied environment "
        "(env -i, sudo), a container and another machine keep it out"
    )


def _shebang(command: str) -> list[str]:
    """``#!/usr/bin/python3 -I`` as words; none where the command is no script."""
    path = shutil.which(command)
    try:
        with Path(path or command).open("rb") as file:
            line = file.read(_SHEBANG_BYTES).split(b"\n", 1)[0]
    except OSError:
        return []
    return line[2:].decode(errors="replace").split() if line.startswith(b"#!") else []


def _isolating_flag(words: Sequence[str]) -> str | None:
    """The first option of the first Python among the words that keeps the bootstrap out."""
    for place, word in enumerate(words):
        if _PYTHON.fullmatch(Path(word).name):
            found = next((letter for letter in _options(words[place + 1 :]) if letter in _WHY), None)
            if found is not None:
                return found
    return None


def _options(words: Sequence[str]) -> Iterator[str]:
    """Python's own options as letters, up to its script.

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
            if letter in "WX":  # takes what is left of the word, or the next one
                if place == len(word):
                    next(following, None)
                break
