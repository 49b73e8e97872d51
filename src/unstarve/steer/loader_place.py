"""Where a loader is being made, in enough words to find it again after the file was edited."""

from __future__ import annotations

import functools
import hashlib
import linecache
import os.path
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType

from unstarve.collect.call_site import call_source, calling_frame, variable_name
from unstarve.model.saved import Place, Span

try:
    _STARTED_IN = Path.cwd()
except OSError:  # somebody has removed it
    _STARTED_IN = Path("/")
"""Python names files as it was given them, from the folder it was started in; a script may leave that."""


def place_here(kind: str) -> Place | None:
    """Where the innermost caller outside of torch and unstarve makes a loader of class `kind`."""
    frame = calling_frame()
    return None if frame is None else place_of(frame, kind)


def place_of(frame: FrameType, kind: str) -> Place:
    """The call that a frame is in the middle of."""
    code = frame.f_code
    return _place(code, frame.f_lasti, frame.f_lineno, kind)


@functools.lru_cache(maxsize=256)
def _place(code: CodeType, instruction: int, line: int, kind: str) -> Place:
    filename = code.co_filename
    span = _span(code, instruction)
    text = (None if span is None else _text(filename, span)) or call_source(filename, line, kind)
    return Place(
        file=os.path.realpath(_STARTED_IN / filename),
        line=line,
        function=code.co_qualname,
        name=variable_name(filename, line if span is None else span.line),
        call=None if text is None else digest(text),
        span=span,
    )


def digest(text: str) -> str:
    """Of a call, however it is laid out."""
    return hashlib.sha256("".join(text.split()).encode()).hexdigest()[:12]


def _span(code: CodeType, instruction: int) -> Span | None:
    """Where the expression under execution is written; None where Python was told not to know."""
    position = next(islice(code.co_positions(), instruction // 2, None), None)
    if position is None:
        return None
    line, end_line, column, end_column = position
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return Span(line, column, end_line, end_column)


def _text(filename: str, span: Span) -> str | None:
    """What is written there. Columns count bytes of UTF-8."""
    lines = [linecache.getline(filename, n).encode() for n in range(span.line, span.end_line + 1)]
    if not lines[0]:
        return None
    lines[-1] = lines[-1][: span.end_column]
    lines[0] = lines[0][span.column :]
    return b"".join(lines).decode(errors="replace")
