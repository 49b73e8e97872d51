"""Pieces of HTML for a notebook cell: no script, no style sheet, all data escaped.

Text has the notebook's own colour, at lower opacity where it matters less, so it reads well on light and dark
pages.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from unstarve.words import printable

_BORDER = "1px solid rgba(127,127,127,.35)"
_SHADE = "rgba(127,127,127,.12)"
_FAINT = "opacity:.7"
_TABLE = "border-collapse:collapse;margin:.4em 0;font:inherit;color:inherit;white-space:nowrap"
GREEN, YELLOW, RED, BLUE = "#1a7f37", "#9a6700", "#cf222e", "#3572b0"
"""Dark enough for white text, light enough to be seen on black."""


def text(words: str) -> str:
    """Escaped text on one line."""
    return html.escape(" ".join(printable(words).split()))


def box(parts: Iterable[str]) -> str:
    """The frame around one result."""
    frame = f"max-width:46em;border:{_BORDER};border-radius:6px;padding:.7em 1em"
    style = f"{frame};line-height:1.45;color:inherit;overflow-x:auto"
    return f'<div style="{style}">{"".join(parts)}</div>'


def headline(words: str, badge: str | None = None, colour: str = BLUE) -> str:
    """The main sentence, after an optional badge."""
    mark = ""
    if badge is not None:
        style = f"background:{colour};color:#fff;border-radius:4px;padding:.1em .5em;margin-right:.6em"
        mark = f'<span style="{style};font-weight:bold">{text(badge)}</span>'
    return f'<div style="font-size:1.1em;margin-bottom:.4em">{mark}<b>{text(words)}</b></div>'


def lines(sentences: Iterable[str]) -> str:
    """A list of sentences."""
    items = "".join(f"<li>{text(sentence)}</li>" for sentence in sentences)
    return f'<ul style="margin:.3em 0 .6em;padding-left:1.3em">{items}</ul>' if items else ""


def bars(rows: Iterable[tuple[str, float, str]], colour: str = BLUE) -> str:
    """A bar per row: name, share from 0 to 1, label."""
    cells = "".join(
        f'<tr style="background:none"><td style="text-align:left;padding:0 .8em 0 0">{text(name)}</td>'
        f'<td style="width:14em;padding:0"><div style="background:{_SHADE};border-radius:2px">'
        f'<div style="width:{min(max(value, 0.0), 1.0):.1%};background:{colour};height:.8em"></div>'
        f'</div></td><td style="text-align:left;padding:0 0 0 .8em">{text(beside)}</td></tr>'
        for name, value, beside in rows
    )
    return f'<table style="{_TABLE}">{cells}</table>' if cells else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, bold: Iterable[int] = ()) -> str:
    """A table; the first column is text, the others numbers. Rows in `bold` are shaded."""
    strong = set(bold)
    cell = "padding:.15em .8em;border:none"
    heads = "".join(
        f'<th style="{cell};text-align:{"right" if i else "left"};{_FAINT}">{text(name)}</th>'
        for i, name in enumerate(head)
    )
    body = "".join(
        f'<tr style="background:{_SHADE if number in strong else "none"}">'
        + "".join(
            f'<td style="{cell};text-align:{"right" if i else "left"}">{text(value)}</td>'
            for i, value in enumerate(row)
        )
        + "</tr>"
        for number, row in enumerate(rows)
    )
    return f'<table style="{_TABLE}"><tr>{heads}</tr>{body}</table>'


def code(source: str) -> str:
    """A block of code."""
    style = (
        f"background:{_SHADE};border-radius:4px;padding:.5em .8em;margin:.3em 0;overflow-x:auto;color:inherit"
    )
    return f'<pre style="{style}">{html.escape(printable(source, len(source), lines=True))}</pre>'


def title(words: str) -> str:
    """A heading."""
    return f'<div style="font-weight:bold;margin-top:.7em">{text(words)}</div>'


def sentence(words: str) -> str:
    """A line of plain text."""
    return f"<div>{text(words)}</div>"


def small(words: str) -> str:
    """A note in small, faint text."""
    return f'<div style="font-size:.9em;{_FAINT};margin-top:.5em">{text(words)}</div>'
