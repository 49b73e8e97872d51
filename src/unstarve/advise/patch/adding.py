"""Arguments added to and removed from a call, laid out as the call is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from unstarve.advise.patch.calls import Argument, Call


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes of a source to be replaced; an insertion where `begin` is `end`."""

    begin: int
    end: int
    text: str


def added(text: bytes, call: Call, values: Mapping[str, Any]) -> list[Edit]:
    """The arguments behind the last one: each on a line of its own where that one is, too.

    `call` is without those that are `removed` in the same change.
    """
    written = [f"{name}={value!r}" for name, value in values.items()]
    close = call.whole.end - 1
    if not call.arguments:
        return [Edit(close, close, ", ".join(written))]
    last = call.arguments[-1].whole
    indent = _indent(text, last.begin)
    if indent is None:
        return [Edit(last.end, last.end, "".join(f", {one}" for one in written))]
    newline = "\r\n" if b"\r\n" in text else "\n"
    closing_line = text.rfind(b"\n", last.end, close) + 1
    if not closing_line:  # the bracket follows the last argument
        return [Edit(last.end, last.end, "".join(f",{newline}{indent}{one}" for one in written))]
    lines = "".join(f"{indent}{one},{newline}" for one in written)
    comma = [] if _comma_after(text, last.end, close) else [Edit(last.end, last.end, ",")]
    return [*comma, Edit(closing_line, closing_line, lines)]


def removed(text: bytes, call: Call, gone: Sequence[Argument]) -> list[Edit]:
    """Without some arguments and their commas; lines that hold nothing else go with their comments."""
    edits: list[Edit] = []
    at = 0
    for leaves, run in groupby(call.arguments, lambda argument: argument in gone):
        members = list(run)
        if leaves:
            edits += _without(text, call.arguments, at, at + len(members))
        at += len(members)
    return edits


def _without(text: bytes, arguments: Sequence[Argument], begin: int, end: int) -> list[Edit]:
    """Without the arguments from `begin` up to `end`, before and behind which others stay."""
    lines = [_own_line(text, argument) for argument in arguments[begin:end]]
    if all(line is not None for line in lines):
        return [line for line in lines if line is not None]
    first, last = arguments[begin].whole, arguments[end - 1].whole
    if end < len(arguments):
        return [Edit(first.begin, arguments[end].whole.begin, "")]
    return [Edit(arguments[begin - 1].whole.end if begin else first.begin, last.end, "")]


def _own_line(text: bytes, argument: Argument) -> Edit | None:
    """The whole lines of an argument, when nothing else but a comment is on them."""
    rest = re.compile(rb"[ \t]*,?[ \t]*(?:#[^\n]*)?\r?\n").match(text, argument.whole.end)
    if rest is None or _indent(text, argument.whole.begin) is None:
        return None
    return Edit(text.rfind(b"\n", 0, argument.whole.begin) + 1, rest.end(), "")


def _indent(text: bytes, at: int) -> str | None:
    """The white space before it, when there is nothing else on its line."""
    before = text[text.rfind(b"\n", 0, at) + 1 : at]
    return None if before.strip() else before.decode()


def _comma_after(text: bytes, begin: int, end: int) -> bool:
    """Whether a comma follows, comments aside."""
    return b"," in re.sub(rb"#[^\n]*", b"", text[begin:end])
