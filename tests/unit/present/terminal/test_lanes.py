"""Lanes drawn as text: who was busy and who waited, one column per stretch of time."""

from __future__ import annotations

import io

from rich.console import Console

from large_run import large_run
from unstarve.api import diagnose
from unstarve.model import Doing, Lane, LaneKind, LaneSpan
from unstarve.present.terminal.lanes import lanes


def drawn(*shown: Lane, width: int = 80) -> list[str]:
    out = io.StringIO()
    drawn = lanes(shown, width)
    if drawn is not None:
        Console(file=out, width=width).print(drawn)
    return out.getvalue().splitlines()


def lane(name: str, kind: LaneKind, *spans: tuple[float, float, Doing]) -> Lane:
    return Lane(name, kind, tuple(LaneSpan(begin, end, doing, None) for begin, end, doing in spans))


MAIN = lane("main", LaneKind.MAIN, (0, 0.5, Doing.WAIT), (0.5, 1, Doing.STEP))


def test_waiting_and_working_are_drawn_where_they_happened() -> None:
    worker = lane("worker 0", LaneKind.WORKER, (0, 0.25, Doing.FETCH), (0.25, 0.5, Doing.COLLATE))
    lines = drawn(MAIN, worker)
    assert "a few typical steps" in lines[1]
    assert lines[2].rstrip() == "main      " + "·" * 30 + "█" * 30
    assert lines[3].rstrip() == "worker 0  " + "█" * 15 + "▓" * 15
    assert lines[4].split() == ["█", "step", "·", "waiting", "█", "fetch", "▓", "collate"]


def test_steps_much_shorter_than_a_column_are_still_seen() -> None:
    spans, at = [], 0.0
    for _ in range(6):
        spans += [(at, at + 0.05, Doing.WAIT), (at + 0.05, at + 0.0502, Doing.STEP)]
        at += 0.0502
    line = drawn(lane("main", LaneKind.MAIN, *spans))[2]
    assert line.count("█") == 6
    assert line.count("·") == 54


def test_short_waits_are_not_made_longer_than_they_are() -> None:
    spans, at = [], 0.0
    for _ in range(6):
        spans += [(at, at + 0.0002, Doing.WAIT), (at + 0.0002, at + 0.0502, Doing.STEP)]
        at += 0.0502
    assert "·" not in drawn(lane("main", LaneKind.MAIN, *spans))[2]


def test_short_spans_do_not_hide_the_long_ones() -> None:
    spans, at = [], 0.0
    for _ in range(60):
        spans += [(at, at + 0.009, Doing.COLLATE), (at + 0.009, at + 0.01, Doing.FETCH)]
        at += 0.01
    worker = lane("worker 0", LaneKind.WORKER, *spans)
    line = drawn(lane("main", LaneKind.MAIN, (0, 0.6, Doing.STEP)), worker)[3]
    assert line.count("▓") >= 55


def test_a_short_span_amid_idle_time_is_seen() -> None:
    worker = lane("worker 0", LaneKind.WORKER, (0.3, 0.3001, Doing.FETCH))
    assert drawn(MAIN, worker)[3].count("█") == 1


def test_it_fits_its_width_and_gives_way_where_there_is_no_room() -> None:
    assert all(len(line) <= 60 for line in drawn(MAIN, width=60))
    assert drawn(MAIN, width=30) == []
    assert drawn() == []


def test_many_workers_are_counted_and_not_drawn() -> None:
    workers = [lane(f"worker {n}", LaneKind.WORKER, (0, 1, Doing.FETCH)) for n in range(12)]
    lines = drawn(MAIN, *workers)
    assert any(line.startswith("+4 more") for line in lines)


def test_the_steps_drawn_are_like_most_others() -> None:
    shown = diagnose(large_run(60, 2)).typical
    assert [lane.kind for lane in shown] == [LaneKind.MAIN, LaneKind.WORKER, LaneKind.WORKER]
    steps = [span for span in shown[0].spans if span.doing is Doing.STEP]
    assert len(steps) == 6
    assert shown[0].spans[0].begin_s == 0


def test_a_run_too_short_for_a_stretch_has_no_image() -> None:
    assert diagnose(large_run(9, 1)).typical == ()
