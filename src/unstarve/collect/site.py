"""Where in the user's source a loader was made. Standard library only: runs while torch is being imported."""

from __future__ import annotations

import keyword
import linecache
import re
import sys
from types import FrameType

_PASSED_OVER = {"torch", "torchdata", "unstarve", "typing", "functools", "contextlib"}


def call_site() -> tuple[str, int]:
    """File and line of the innermost caller outside of torch and unstarve."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in _PASSED_OVER:
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return "?", 0


def variable_name(filename: str, line: int) -> str | None:
    """The name that the source line assigns to, as in ``train_loader = DataLoader(…)``."""
    match = re.match(r"\s*(?:self\.)?(\w+)\s*(?::[^=]+)?=[^=]", linecache.getline(filename, line))
    return match.group(1) if match and not keyword.iskeyword(match.group(1)) else None  # else: loader = …
