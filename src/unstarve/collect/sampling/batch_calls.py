"""Which call in a training loop returns its batches, by the text of the loop and the values in its frame.

No code of the user is called: names are looked up, and attributes without running properties.
"""

from __future__ import annotations

import inspect
import linecache
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

_TRAINS = re.compile(r"\bbackward\(")
_NAME = r"[A-Za-z_]\w*"
_ASSIGNED = re.compile(rf"\s*\(?({_NAME}(?:\s*,\s*{_NAME})*)\)?\s*=\s*({_NAME}(?:\.{_NAME})*)\(")
_ITERATED = re.compile(rf"\s*for\b.+?\bin\s+(?:enumerate\(\s*)?({_NAME}(?:\.{_NAME})*)\(")
_SOUNDS_RIGHT = re.compile(r"batch|load|fetch|sampl|next|data", re.IGNORECASE)
_MOST_TEXT = 44
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]")
_NOT_OWN = (
    "<",  # made up
    str(Path(os.__file__).parent),  # the standard library
    str(Path(sys.prefix, "bin")),
    str(Path(__file__).parents[2]),  # unstarve
)


@dataclass(frozen=True, slots=True)
class BatchCall:
    """A function of the user that returns batches, or a generator that yields them."""

    kind: str
    """``function``, ``method`` or ``generator``."""
    name: str
    """As the loop calls it: ``get_batch``, ``train_loader.next_batch``."""
    file: str
    line: int
    """First line of its definition; of the loop for a generator."""
    text: str
    """Of a generator: the line of the loop."""
    defined: tuple[str, int]
    """File and first line of the function itself."""

    @property
    def sounds_right(self) -> bool:
        return _SOUNDS_RIGHT.search(self.name) is not None

    def fields(self) -> tuple[str, str, str, int, str]:
        return self.kind, self.name, self.file, self.line, self.text


@dataclass(frozen=True)
class LoopCode:
    """One code object of the user's: its own lines, without the functions defined inside it."""

    file: str
    lines: dict[int, str]
    trains: bool
    """It calls ``backward`` itself."""
    assigned: tuple[tuple[tuple[str, ...], str], ...]
    """Names and the call whose result they are given, inside a loop."""
    iterated: tuple[tuple[str, int], ...]
    """Calls that a ``for`` iterates over, and their lines."""

    def text(self, line: int) -> str:
        """A line as the user wrote it, cut to a length that can be printed."""
        text = self.lines.get(line, "").strip()
        return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1]}…"

    def is_in_loop(self, line: int) -> bool:
        """Whether a line stands in the body of a loop."""
        source = linecache.getlines(self.file)
        return 0 < line <= len(source) and _is_inside_loop(source, line - 1)

    def returned_batches(self, frame: FrameType) -> Iterator[BatchCall]:
        """The calls of this code that have given batches to the variables of a frame."""
        from unstarve.collect.sampling.line_expression import values_in  # needs all of torch

        for targets, called in self.assigned:
            first, *_ = called.split(".")
            found, *values = values_in(frame, (first, *targets))
            function = _function(found, called)
            if function is not None and _is_batch(values):
                code = function.__code__
                kind = "method" if "." in code.co_qualname.replace("<locals>.", "") else "function"
                yield BatchCall(kind, called, code.co_filename, code.co_firstlineno, "", _defined(function))
        for called, line in self.iterated if self.trains else ():
            function = _function(values_in(frame, (called.split(".")[0],))[0], called)
            if function is not None and inspect.isgeneratorfunction(function):
                text = self.lines[line].strip()
                yield BatchCall("generator", called, self.file, line, text, _defined(function))


@lru_cache(maxsize=512)
def loop_code(code: CodeType) -> LoopCode:
    """What the source says about a code object; nothing where there is no source."""
    source = linecache.getlines(code.co_filename)
    numbers = sorted({line for _, _, line in code.co_lines() if line and line <= len(source)})
    lines = {number: source[number - 1].rstrip("\n") for number in numbers}
    assigned, iterated = [], []
    for number, text in lines.items():
        if (match := _ASSIGNED.match(text)) and _is_inside_loop(source, number - 1):
            assigned.append((tuple(name.strip() for name in match[1].split(",")), match[2]))
        elif match := _ITERATED.match(text):
            iterated.append((match[1], number))
    trains = any(_TRAINS.search(text) for text in lines.values())
    return LoopCode(code.co_filename, lines, trains, tuple(assigned), tuple(iterated))


def _is_inside_loop(source: list[str], at: int) -> bool:
    """Whether a line stands in the body of a ``for`` or ``while`` of the same function."""
    indent = _indent(source[at])
    if not indent:
        return False
    for line in reversed(source[:at]):
        if line.strip() and not line.lstrip().startswith("#") and _indent(line) < indent:
            indent = _indent(line)
            if re.match(r"\s*(for|while|async for)\b", line):
                return True
            if re.match(r"\s*(def|class|async def)\b", line):
                return False
    return False


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _defined(function: FunctionType) -> tuple[str, int]:
    return function.__code__.co_filename, function.__code__.co_firstlineno


def _function(found: Any, called: str) -> FunctionType | None:
    """The user's function behind a dotted name whose first part is `found`."""
    for name in called.split(".")[1:]:
        found = inspect.getattr_static(found, name, None)
    if isinstance(found, (MethodType, staticmethod, classmethod)):
        found = found.__func__
    if not isinstance(found, FunctionType):
        return None
    return found if is_own(found.__code__.co_filename) else None


@lru_cache(maxsize=4096)
def is_own(filename: str) -> bool:
    """Whether a file is the user's own: not the standard library, not installed, not made up."""
    return not filename.startswith(_NOT_OWN) and not _INSTALLED.search(filename)


def _is_batch(values: list[Any]) -> bool:
    """Whether these are tensors or arrays that no gradient flows through, or mappings of them."""
    parts = [part for one in values for part in (one.values() if isinstance(one, dict) else [one])]
    return bool(parts) and all(_is_data(part) for part in parts[:8])


def _is_data(value: Any) -> bool:
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    if isinstance(value, torch.Tensor):
        return bool(value.ndim) and not value.requires_grad
    return numpy is not None and isinstance(value, numpy.ndarray) and bool(value.ndim)
