"""Stacks of a trace, with the time that is their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profiler_files import event, write_trace
from unstarve.importers import folded_stacks as folding
from unstarve.importers.folded_stacks import folded_stacks


def test_functions_and_operators_nest_and_keep_their_own_time(tmp_path: Path) -> None:
    events = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "main"}},
        event("python_function", "train.py(1): main", 0, 10),
        event("cpu_op", "aten::linear", 1, 4),
        event("cpu_op", "aten::addmm", 2, 2),
        event("python_function", "torch/x.py(5): f; g", 6, 1),
        event("cpu_op", "aten::linear", 8, 1),
        event("kernel", "gemm", 2, 50, device=0),
    ]
    assert sorted(folded_stacks(write_trace(tmp_path / "t.json.gz", events))) == [
        "main;train.py(1): main 4000",
        "main;train.py(1): main;aten::linear 3000",
        "main;train.py(1): main;aten::linear;aten::addmm 2000",
        "main;train.py(1): main;torch/x.py(5): f, g 1000",
    ]


def test_all_steps_are_one_and_the_number_of_stacks_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "_MOST_STACKS", 2)
    events = [event("user_annotation", f"ProfilerStep#{n}", 10 * n, 5) for n in range(3)]
    events += [event("cpu_op", f"aten::op{n}", 10 * n, 1) for n in range(3)]
    (line,) = folded_stacks(write_trace(tmp_path / "t.json", events))
    assert line == "thread 1;ProfilerStep 15000"


def test_numbers_that_are_none_are_left_out(tmp_path: Path) -> None:
    wrong = [float("nan"), float("inf"), 10**400, None, "x", [], -5]
    events = [{**event("cpu_op", "a", 0, 1), "ts": value} for value in wrong]
    events += [{**event("cpu_op", "a", 0, 1), "dur": value} for value in wrong]
    file = tmp_path / "t.json"
    file.write_text(json.dumps({"traceEvents": events}))
    assert all(line.startswith("thread 1;a ") for line in folded_stacks(file))
