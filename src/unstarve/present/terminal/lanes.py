"""A few typical steps drawn in characters: a line each for training, workers and device."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from unstarve.model import Doing, Lane, LaneKind
from unstarve.words import duration

_WIDEST = 60
_BESIDE = 20
"""Columns taken by a lane's name and the margins."""
_MOST_WORKERS = 8

_LOOKS = {
    Doing.STEP: ("█", "green"),
    Doing.WAIT: ("·", "red"),
    Doing.START: ("·", "red"),
    Doing.END: ("·", "red"),
    Doing.BETWEEN: ("▒", "yellow"),
    Doing.FETCH: ("█", "blue"),
    Doing.COLLATE: ("▓", "magenta"),
    Doing.SEND: ("▒", "cyan"),
    Doing.PIN: ("█", "cyan"),
    Doing.STALL: ("·", "red"),
}
_KEYS = (
    (LaneKind.MAIN, Doing.STEP, "step"),
    (LaneKind.MAIN, Doing.WAIT, "waiting"),
    (LaneKind.WORKER, Doing.FETCH, "fetch"),
    (LaneKind.WORKER, Doing.COLLATE, "collate"),
    (LaneKind.WORKER, Doing.SEND, "send"),
)


def lanes(shown: Sequence[Lane], width: int) -> Group | None:
    """The lanes; None if there is nothing to draw or no room."""
    columns = min(_WIDEST, width - _BESIDE)
    main = [lane.spans[-1].end_s for lane in shown if lane.kind is LaneKind.MAIN and lane.spans]
    end_s = max(main, default=0.0)
    if columns < 20 or end_s <= 0:
        return None
    table = Table.grid(padding=(0, 2))
    workers = [lane for lane in shown if lane.kind is LaneKind.WORKER]
    hidden = workers[_MOST_WORKERS:]
    for lane in shown:
        if lane not in hidden:
            table.add_row(Text(lane.name), _line(lane, end_s, columns))
    if hidden:
        table.add_row(f"+{len(hidden)} more", "")
    title = Text("\na few typical steps", "bold")
    title.append(f"  {duration(end_s)} from left to right", "bright_black")
    return Group(title, table, _keys(shown))


def _line(lane: Lane, end_s: float, columns: int) -> Text:
    """One character per column: what took most of its time."""
    per_column = end_s / columns
    spent: list[dict[Doing, float]] = [{} for _ in range(columns)]
    for span in lane.spans:
        first = max(int(span.begin_s / per_column), 0)
        last = min(int(span.end_s / per_column), columns - 1)
        for column in range(first, last + 1):
            begin_s, until_s = column * per_column, (column + 1) * per_column
            seconds = min(span.end_s, until_s) - max(span.begin_s, begin_s)
            spent[column][span.doing] = spent[column].get(span.doing, 0.0) + max(seconds, 0.0)
    line = Text()
    for inside in spent:
        doing = max(inside, key=lambda one: inside[one], default=None)
        if doing is None or inside[doing] < per_column / 4:
            line.append(" ")
        else:
            line.append(*_LOOKS[doing])
    return line


def _keys(shown: Sequence[Lane]) -> Text:
    used = {(lane.kind, span.doing) for lane in shown for span in lane.spans}
    text = Text()
    for kind, doing, word in _KEYS:
        if (kind, doing) in used:
            text.append(*_LOOKS[doing]).append(f" {word}   ", "bright_black")
    return text
