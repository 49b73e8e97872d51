"""Frames of ours that ``stacklevel`` does not count, so that warnings name the line they name without us."""

from __future__ import annotations

from typing import TypeVar

F = TypeVar("F")

_PASSED_OVER = " (as importlib._bootstrap)"
"""`warnings` and `logging` do not count frames whose file name has both words, importlib and _bootstrap."""


def uncounted(function: F) -> F:
    """Let ``warnings.warn(…, stacklevel=N)`` pass over the frames of this function.

    torch finds the line that asked for a batch by counting frames from its own. A wrapper of ours in between
    would be named instead, and filters by module or line would miss the warning.
    """
    code = function.__code__  # type: ignore[attr-defined]  # F is a plain function
    if not code.co_filename.endswith(_PASSED_OVER):
        renamed = code.replace(co_filename=code.co_filename + _PASSED_OVER)
        function.__code__ = renamed  # type: ignore[attr-defined]  # as above
    return function
