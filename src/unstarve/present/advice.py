"""The end of the terminal report: the questions people ask in turn, then what to change."""

from __future__ import annotations

import re

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from unstarve.model import Advice, Diagnosis, Gain
from unstarve.words import times_interval

_MOST_ADVICE = 3
"""Further advice is left to the JSON."""


def walk(d: Diagnosis) -> Group | None:
    """Question and answer, line by line; the last one leads over to the advice."""
    if not d.walk:
        return None
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for line in d.walk:
        question, answer = [*re.split(r"(?<=\?)\s+", line, maxsplit=1), ""][:2]
        table.add_row(Text(question), Text(answer))
    if d.advice:
        table.add_row("What to change?", Text(d.advice[0].title, "bold"))
    return Group(Text("\nstep by step", "bold"), table)


def advice(d: Diagnosis) -> Group | None:
    """The best few pieces of advice, each with its gain, its reason and what to write."""
    if not d.advice:
        return None
    table = Table.grid(padding=(0, 1))
    for number, one in enumerate(d.advice[:_MOST_ADVICE], start=1):
        table.add_row(f"{number}.", _piece(one))
    return Group(Text("\nadvice", "bold"), table)


def _piece(one: Advice) -> Group:
    lines: list[RenderableType] = [Text(one.title, "bold")]
    if one.speedup is not None:
        lines.append(Text(f"{_gain(one.speedup)} predicted", "green"))
    lines.append(Text(one.why[:1].upper() + one.why[1:] + ".", overflow="fold"))
    lines.append(Padding(Text(one.code, "cyan", overflow="fold"), (0, 0, 0, 2)))
    return Group(*lines)


def _gain(gain: Gain) -> str:
    digits = 1 if gain.predicted >= 1.2 else 2
    return f"≈ {times_interval(gain.predicted, gain.low, gain.high, digits)}"
