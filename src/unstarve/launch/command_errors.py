"""Why did the command fail? Reads what the bootstrap left when its processes ended.

5312-1763452800000.ended    {"parent": 5310, "rank": null, "at_ns": 1763452800000,
                             "exception": "ModuleNotFoundError: No module named 'albumentations'\\n",
                             "stderr": "Traceback (most recent call last): …"}
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_SUFFIX = ".ended"
_MOST_CHARACTERS = 300
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NAMES_AN_ERROR = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Iteration)\b(?:: .*)?")
_RANK_KILLED = re.compile(r"Root Cause .*? rank +: (\d+) .*? traceback : Signal \d+ \((SIG\w+)\)", re.DOTALL)
"""torchrun's lines about a rank that could not leave any words itself."""
_INTERRUPTED = re.compile(r"\.SignalException: Process \d+ got signal: 2\b")
"""torchrun's sentence about Ctrl-C."""


@dataclass(frozen=True, slots=True)
class _LastWords:
    """How one process of the command ended."""

    parent: int
    rank: str | None
    at_ns: int
    exception: str | None
    stderr: str

    @property
    def line(self) -> str | None:
        line = error_line(self.exception) if self.exception else _last_line(self.stderr)
        return f"rank {self.rank}: {line}" if line and self.rank is not None else line


def command_error(parts: Path) -> str | None:
    """The line that says why the command failed; None when no process left one."""
    ended = sorted(_read(parts), key=lambda one: one.at_ns)
    chosen = _root_of(ended)
    return None if chosen is None else chosen.line


def exceptions_in(parts: Path) -> list[str]:
    """The exceptions that ended processes of the command, in the order of time."""
    return [one.exception for one in sorted(_read(parts), key=lambda one: one.at_ns) if one.exception]


def error_line(exception: str) -> str | None:
    """The line of an exception's text that names the error.

    A message may quote another traceback, whose last line is the reason (a DataLoader worker's), or go on
    with hints (CUDA's): the last line that begins with the name of an error counts, else the first.

    >>> error_line("RuntimeError: Caught LookupError in worker 0.\\nTraceback …:\\nLookupError: 17\\n")
    'LookupError: 17'
    """
    killed = _RANK_KILLED.search(exception)
    if killed:
        return f"rank {killed[1]} was killed by {killed[2]}"
    if _INTERRUPTED.search(exception):
        return "KeyboardInterrupt"
    lines = [line.strip() for line in exception.splitlines() if line.strip()]
    named = [line for line in lines if _NAMES_AN_ERROR.fullmatch(line)]
    return _cut((named or lines[:1] or [""])[-1])


def _root_of(ended: Sequence[_LastWords]) -> _LastWords | None:
    """The process whose end explains the others.

    That is whoever saw a rank killed, which fails the others; else the first rank that failed; else the
    command itself.
    """
    raised = [one for one in ended if one.exception]
    ranks = [one for one in raised if one.rank is not None]
    own = [one for one in ended if one.parent == os.getpid()]
    saw = [one for one in raised if one.rank is None and _RANK_KILLED.search(one.exception or "")]
    for candidates in (saw, ranks[:1], [one for one in own if one.exception], own, raised, ended):
        if candidates:
            return candidates[-1]
    return None


def _read(parts: Path) -> list[_LastWords]:
    found = []
    for path in parts.glob(f"*{_SUFFIX}"):
        try:
            said = json.loads(path.read_text("utf-8", "replace"))
            found.append(_LastWords(**said))
        except (OSError, ValueError, TypeError):  # a process died while it wrote
            continue
    return found


def _last_line(text: str) -> str | None:
    """The last line with words in it: borders and progress bars without any are passed over."""
    lines = (_ESCAPE.sub("", line).strip() for line in reversed(text.splitlines()))
    return _cut(next((line for line in lines if re.search(r"[^\W\d_]{2}", line)), ""))


def _cut(line: str) -> str | None:
    return (line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]}…") or None
