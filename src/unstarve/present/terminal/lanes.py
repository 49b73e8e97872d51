"""A few typical steps drawn in characters: a line each for training, workers and device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

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
_WORK = (Doing.STEP, Doing.FETCH, Doing.PIN)
"""What is drawn however short it is."""
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
    """One character per column: what took most of its time; a short step has one, too."""
    per_column = end_s / columns
    spent: list[dict[int, float]] = [{} for _ in range(columns)]  # by the number of the span
    for number, span in enumerate(lane.spans):
        first = max(int(span.begin_s / per_column), 0)
        last = min(int(span.end_s / per_column), columns - 1)
        for column in range(first, last + 1):
            begin_s, until_s = column * per_column, (column + 1) * per_column
            spent[column][number] = max(min(span.end_s, until_s) - max(span.begin_s, begin_s), 0.0)
    shown = [_most(lane, inside, per_column) for inside in spent]
    _give_room(lane, shown, spent)
    line = Text()
    for most in shown:
        line.append(*((" ",) if most is None else _LOOKS[lane.spans[most].doing]))
    return line


def _most(lane: Lane, inside: Mapping[int, float], per_column: float) -> int | None:
    """The longest span of what took most of a column; None for one that is mostly empty."""
    by_doing: dict[Doing, float] = {}
    for number, seconds in inside.items():
        by_doing[lane.spans[number].doing] = by_doing.get(lane.spans[number].doing, 0.0) + seconds
    doing = max(by_doing, key=lambda one: by_doing[one], default=None)
    if doing is None or by_doing[doing] < per_column / 4:
        return None
    return max((n for n in inside if lane.spans[n].doing is doing), key=lambda n: inside[n])


def _give_room(lane: Lane, shown: list[int | None], spent: Sequence[Mapping[int, float]]) -> None:
    """Give each short span of work that has no column one of those it lies in, unless that hides another.

    A short wait needs none: drawn a hundred times as long as it was, it would look like the bottleneck.
    """
    owned = Counter(shown)
    hidden: dict[int, list[int]] = {}
    for column, inside in enumerate(spent):
        for number, seconds in inside.items():
            if seconds > 0 and not owned[number] and lane.spans[number].doing in _WORK:
                hidden.setdefault(number, []).append(column)
    for number, within in hidden.items():
        free = [column for column in within if shown[column] is None or owned[shown[column]] > 1]
        if free:
            column = max(free, key=lambda c: spent[c][number])
            owned[shown[column]] -= 1
            shown[column], owned[number] = number, 1


def _keys(shown: Sequence[Lane]) -> Text:
    used = {(lane.kind, span.doing) for lane in shown for span in lane.spans}
    text = Text()
    for kind, doing, word in _KEYS:
        if (kind, doing) in used:
            text.append(*_LOOKS[doing]).append(f" {word}   ", "bright_black")
    return text
