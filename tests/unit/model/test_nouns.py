"""The same noun with other texts in it."""

from __future__ import annotations

from fakes import simple_run
from unstarve.analyze.diagnose import analyze_run
from unstarve.model import Diagnosis, Lane, LaneKind, Verdict
from unstarve.model.causes import Cause, State
from unstarve.model.nouns import each_text


def test_every_text_is_changed_wherever_it_lies_and_nothing_else() -> None:
    verdict = Verdict(State.FED, Cause.CPU, "a", ("b", "c"))
    changed = each_text(verdict, lambda text, field: f"{field}:{text}")
    assert changed == Verdict(State.FED, Cause.CPU, "headline:a", ("evidence:b", "evidence:c"))
    assert each_text({"a": ["b", 1, None, {"c": 2.5}]}, lambda text, _: text.upper()) == {
        "A": ["B", 1, None, {"C": 2.5}]
    }
    lane = Lane("x", LaneKind.MAIN, ())
    assert each_text(lane, lambda text, _: text) == lane


def test_a_whole_diagnosis_stays_as_it_is_where_no_text_is_changed() -> None:
    diagnosis: Diagnosis = analyze_run(simple_run([(0.06, 0.04)] * 50))
    assert each_text(diagnosis, lambda text, _: text) == diagnosis


def test_what_is_nested_without_end_is_cut_off() -> None:
    deep: list[object] = []
    for _ in range(10_000):
        deep = [deep]
    assert len(repr(each_text(deep, lambda text, _: text))) < 1000
