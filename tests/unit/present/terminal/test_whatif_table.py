"""Forecasts as people and programs read them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from fake_forecaster import demands
from unstarve.errors import UsageError
from unstarve.model import WhatIf
from unstarve.predict.demand import BatchDemand
from unstarve.predict.forecast import model_loader, what_if
from unstarve.present.exports import report_json
from unstarve.present.exports.figures import whatif_figure
from unstarve.present.terminal.whatif_table import headline, print_whatif

LATENCY = BatchDemand(blocked_s=0.08, cpu_s=0.0005, take_s=0.0005, step_delay_s=0.01)


@pytest.fixture(scope="module")
def result() -> WhatIf:
    return what_if(model_loader(demands(LATENCY, 2)), (0, 2, 16))


@pytest.fixture(scope="module")
def grid() -> WhatIf:
    return what_if(model_loader(demands(LATENCY, 2, samples=8000.0)), (0, 2), (1, 2), (8, 16))


def printed(result: WhatIf, width: int = 80) -> str:
    out = io.StringIO()
    print_whatif(result, Console(file=out, width=width))
    return out.getvalue()


def test_the_table_fits_eighty_columns_and_marks_its_rows(result: WhatIf, grid: WhatIf) -> None:
    for one in (result, grid):
        shown = printed(one)
        assert max(len(line) for line in shown.splitlines()) <= 80
        assert "…" not in shown
        assert all(mark in shown for mark in ("recorded", "best", "enough"))
    rows = {line.split()[0]: line for line in printed(result).splitlines() if line.strip()[:1].isdigit()}
    assert set(rows) == {"0", "2", "16"}
    assert rows["2"].rstrip().endswith("recorded")
    assert rows["16"].rstrip().endswith("best, enough")
    assert "1.00×" in rows["2"]


def test_columns_appear_where_settings_differ(result: WhatIf, grid: WhatIf) -> None:
    assert "prefetch" not in printed(result)
    assert all(word in printed(grid) for word in ("workers", "prefetch", "batch", "samples/s"))


def test_the_headline_names_what_is_enough(result: WhatIf) -> None:
    assert headline(result).startswith("With 16 workers training would run")
    content = what_if(model_loader(demands(BatchDemand(step_delay_s=0.05, cpu_s=0.001), 4)), (1, 4))
    assert headline(content) == "With 1 worker training would run as fast as with the recorded 4 workers."
    alone = what_if(model_loader(demands(LATENCY, 16)), (1, 16))
    assert "is about as good as any" in headline(alone)


def test_the_json_block_has_a_curve_with_low_and_high(result: WhatIf) -> None:
    block = json.loads(json.dumps(report_json.whatif(result, "run.unstarve")))
    assert [point["workers"] for point in block["curve"]] == [0, 2, 16]
    for point in block["curve"]:
        assert point["low"] <= point["steps_per_s"] <= point["high"]
        assert set(point["speedup"]) == {"predicted", "low", "high"}
    assert [point["recorded"] for point in block["curve"]] == [False, True, False]
    assert (block["schema"], block["run"]) == ("unstarve.whatif/1", "run.unstarve")


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_curve_is_drawn(tmp_path: Path, result: WhatIf, grid: WhatIf, suffix: str) -> None:
    for name, one in (("one", result), ("grid", grid)):
        drawn = whatif_figure(one, tmp_path / f"{name}{suffix}")
        assert drawn.stat().st_size > 5000
    if suffix == ".svg":
        assert "recorded" in (tmp_path / "one.svg").read_text()


def test_a_image_of_another_kind_is_turned_down(tmp_path: Path, result: WhatIf) -> None:
    with pytest.raises(UsageError, match=r"\.png or \.svg"):
        whatif_figure(result, tmp_path / "curve.gif")
