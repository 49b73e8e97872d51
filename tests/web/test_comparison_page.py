"""Two runs side by side in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fakes import FakeTraining, run_of, simple_run
from large_run import large_run
from unstarve.analyze.chart_views import views_of
from unstarve.analyze.comparison import compare
from unstarve.present.page.html_page import comparison_page


def test_both_runs_are_shown_side_by_side(opened: Any, tmp_path: Path) -> None:
    a, b = large_run(200, 1), large_run(200, 2)
    file = tmp_path / "compare.html"
    file.write_text(comparison_page(compare(a, b, ()), views_of(a), views_of(b)), encoding="utf-8")
    page = opened.show(file)
    assert page.inner_text("h1")
    ids = page.eval_on_selector_all("[id]", "found => found.map(one => one.id)")
    assert len(ids) == len(set(ids))
    assert {"A-timeline", "B-timeline", "A-budget", "B-budget"} <= set(ids)
    assert "throughput" in page.inner_text("#numbers")
    assert "step + wait, mean" in page.inner_text("#numbers")
    assert opened.complaints == []


def test_what_the_numbers_measure_is_told_where_they_disagree(opened: Any, tmp_path: Path) -> None:
    a, b = (simple_run([(0.05, 0.05)] * 60), FakeTraining())
    b.begin()
    for _ in range(60):
        b.take(0.05, size=32)
        b.spend(0.05)
    file = tmp_path / "compare.html"
    file.write_text(comparison_page(compare(a, run_of(b)), None, None), encoding="utf-8")
    page = opened.show(file)
    assert "in samples per second" in page.inner_text("h1")
    assert "a step has 8 samples in A, 32 in B" in page.inner_text("#verdict .evidence")
