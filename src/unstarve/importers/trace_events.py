"""The events of a Chrome trace, one by one: a file of gigabytes is never in memory as a whole.

    {"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel", "ts": 12.5, "dur": 3, …}, …], …}

The list may also stand alone, without the object around it, and the file may be compressed with gzip.
"""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from unstarve.errors import ProfileError

_CHUNK_BYTES = 1 << 22
_MOST_EVENT = 1 << 26
"""Longest event or other value, in characters."""
_EVENTS = "traceEvents"
_SPACE = " \t\r\n"
_decode = json.JSONDecoder().raw_decode

Progress = Callable[[int], None]
"""Called with the number of bytes of the file that have been read."""


class TraceFile:
    """An open trace. Iterate it once; `header` then holds what stood beside the events."""

    def __init__(self, path: Path, progress: Progress) -> None:
        self.header: dict[str, Any] = {}
        self._path = path
        self._progress = progress
        self._text = ""
        self._at = 0
        self._ended = False

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The events that are objects, in the file's order. Raises ProfileError for anything but a trace."""
        try:
            with self._path.open("rb") as file:
                packed = file.read(2) == b"\x1f\x8b"
                file.seek(0)
                content = gzip.GzipFile(fileobj=file) if packed else file
                self._chunks = _decoded(content, file, self._progress)
                yield from self._whole()
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or error
            raise ProfileError(f"cannot read {self._path}: {reason}") from error
        except (ValueError, RecursionError) as error:
            raise ProfileError(f"{self._path} is not a whole trace: {_reason(error)}") from error

    def _whole(self) -> Iterator[dict[str, Any]]:
        first = self._next()
        if first == "[":
            yield from self._list()
            return
        if first != "{":
            raise ValueError("it does not begin like JSON")
        found = False
        while self._next() != "}":
            self._at -= 1
            name = self._value()
            if not isinstance(name, str) or self._next() != ":":
                raise ValueError("a name and a colon were expected")
            if name == _EVENTS and self._next() == "[":
                found = True
                yield from self._list()
            elif name == _EVENTS:
                raise ValueError(f"{_EVENTS} is not a list")
            else:
                self.header[name] = self._value()
            if self._next() == "}":
                break
            self._expect(",")
        if not found:
            raise ValueError(f"it has no {_EVENTS}")

    def _list(self) -> Iterator[dict[str, Any]]:
        if self._next() == "]":
            return
        self._at -= 1
        while True:
            event = self._value()
            if isinstance(event, dict):
                yield event
            if self._next() == "]":
                return
            self._expect(",")

    def _expect(self, character: str) -> None:
        if self._text[self._at - 1] != character:
            raise ValueError(f"a {character!r} is missing")

    def _next(self) -> str:
        """The next character that is not white space; it is consumed."""
        while True:
            text, at = self._text, self._at
            while at < len(text) and text[at] in _SPACE:
                at += 1
            if at < len(text):
                self._at = at + 1
                return text[at]
            self._at = at
            if not self._more():
                raise ValueError("it ends too early")

    def _value(self) -> Any:
        """The next JSON value; it is consumed."""
        self._next()
        self._at -= 1
        while True:
            try:
                value, end = _decode(self._text, self._at)
            except json.JSONDecodeError:
                if len(self._text) - self._at > _MOST_EVENT or not self._more():
                    raise
                continue
            if end == len(self._text) and self._more():
                continue  # a number may go on
            self._at = end
            return value

    def _more(self) -> bool:
        """Read on, forgetting what was consumed; False at the end."""
        chunk = next(self._chunks, None)
        if chunk is None:
            return False
        self._text = self._text[self._at :] + chunk
        self._at = 0
        return True


def _decoded(content: Any, file: BinaryIO, progress: Progress) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while data := content.read(_CHUNK_BYTES):
        progress(file.tell())
        if text := decoder.decode(data):
            yield text
    if text := decoder.decode(b"", final=True):
        yield text


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return "it is cut off or damaged"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
