"""The workers' part of the view that `unstarve top` draws."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from rich.text import Text

from unstarve.model import Doing, WorkerNow
from unstarve.words import clock, percent, rate, size

_DIM = "bright_black"
_DOES = {
    Doing.FETCH: "fetching",
    Doing.COLLATE: "collating",
    Doing.SEND: "sending",
    Doing.WAIT: "nothing to do",
}
_BAR = 8
_WIDE = 76
"""Columns of a terminal that a worker's pid and a bar for it fit into."""


class WorkerOrder(StrEnum):
    """Which workers are shown first."""

    PLACE = "by number"
    BUSIEST = "busiest first"
    NONE = "hidden"


def worker_lines(workers: Sequence[WorkerNow], order: WorkerOrder, room: int, width: int) -> list[Text]:
    """A line each, under a heading; at most `room` lines in all."""
    if order is WorkerOrder.NONE or not workers or room < 2:
        return []
    shown = list(workers)
    if order is WorkerOrder.BUSIEST:
        shown.sort(key=lambda worker: -(worker.busy_share or 0.0))
    wide = width >= _WIDE
    busy = "busy".ljust(_BAR + 6) if wide else "  busy"
    heading = _line("#", "pid" if wide else "", "does", busy, "mostly", "per s", "memory")
    most = room - 1 if len(shown) < room else room - 2
    lines = [Text(heading, _DIM), *(_worker(worker, wide=wide) for worker in shown[:most])]
    if len(shown) > most:
        lines.append(Text(f"and {len(shown) - most} more ({order.value})", _DIM))
    return lines


def _worker(worker: WorkerNow, *, wide: bool) -> Text:
    does = "no word of it" if worker.doing is None else _DOES.get(worker.doing, worker.doing.value)
    if worker.since_s is not None:
        does += f" {clock(worker.since_s)}"
    busy = worker.busy_share or 0.0
    line = _line(
        str(worker.place),
        str(worker.pid) if wide else "",
        does,
        (bar(busy, _BAR) if wide else "") + f"{percent(busy):>6}",
        "–" if worker.waits_for is None else worker.waits_for.value,
        "–" if worker.batches_per_s is None else rate(worker.batches_per_s),
        "–" if worker.rss_bytes is None else size(worker.rss_bytes),
    )
    return Text(line, _DIM if worker.doing in (None, Doing.WAIT) else "default")


def _line(place: str, pid: str, does: str, busy: str, mostly: str, per_s: str, memory: str) -> str:
    who = f"{place:<4}{pid:<9}" if pid else f"{place:<4}"
    return f"{who}{does:<21} {busy}  {mostly:<11}{per_s:>6} {memory:>8}"


def bar(value: float, width: int) -> str:
    """A share as a bar of so many characters."""
    filled = round(max(0.0, min(value, 1.0)) * width)
    return "█" * filled + "░" * (width - filled)
