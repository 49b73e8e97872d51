"""A trace that Perfetto and chrome://tracing can open, made of the same lanes as every other view."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fakes import run_of
from large_run import large_run
from unstarve.analyze.chart_views import views_of
from unstarve.api import diagnose
from unstarve.model import MemoryLine, MemorySummary
from unstarve.present.exports.perfetto import trace


@pytest.fixture(scope="module")
def traced() -> dict[str, Any]:
    run = large_run(40, 2)
    return trace(diagnose(run), views_of(run))


def of_phase(traced: dict[str, Any], phase: str) -> list[dict[str, Any]]:
    return [event for event in traced["traceEvents"] if event["ph"] == phase]


def test_it_is_json_with_a_track_per_lane(traced: dict[str, Any]) -> None:
    assert json.loads(json.dumps(traced, allow_nan=False)) == traced
    names = [event["args"]["name"] for event in of_phase(traced, "M") if event["name"] == "thread_name"]
    assert names == ["main", "worker 0", "worker 1"]


def test_every_span_lies_on_a_track_and_has_a_length(traced: dict[str, Any]) -> None:
    spans = of_phase(traced, "X")
    assert {span["tid"] for span in spans} == {1, 2, 3}
    assert all(span["dur"] >= 0 and {"pid", "ts", "name", "cat"} <= set(span) for span in spans)
    counted = Counter(span["name"] for span in spans)
    assert counted["step"] == 40
    assert counted["fetch"] == counted["collate"] == counted["send"] == 40


def test_an_arrow_leads_from_each_fetch_to_the_step_that_used_it(traced: dict[str, Any]) -> None:
    starts = {event["id"]: event for event in of_phase(traced, "s")}
    ends = {event["id"]: event for event in of_phase(traced, "f")}
    assert set(starts) == set(ends) == set(range(40))
    assert len(of_phase(traced, "f")) == 40
    assert all(starts[n]["ts"] <= ends[n]["ts"] and ends[n]["bp"] == "e" for n in starts)
    assert {event["tid"] for event in ends.values()} == {1}


def test_the_queue_is_a_counter_and_epochs_are_marks(traced: dict[str, Any]) -> None:
    assert len(of_phase(traced, "C")) == 40
    assert [mark["name"] for mark in of_phase(traced, "i")] == ["train: epoch 0"]


def test_memory_is_a_counter_per_line_and_none_where_nobody_looked(traced: dict[str, Any]) -> None:
    lines = (MemoryLine("training", (0.0, 1.0), (10, 20)), MemoryLine("/dev/shm", (1.0,), (5,)))
    run = large_run(40, 2)
    diagnosis = dataclasses.replace(diagnose(run), memory=MemorySummary(20, None, 5, None, lines))
    counters = [
        (event["name"], event["ts"], event["args"]["bytes"])
        for event in of_phase(trace(diagnosis, views_of(run)), "C")
        if event["name"].startswith("memory")
    ]
    assert counters == [
        ("memory: training", 0, 10), ("memory: training", 1e6, 20), ("memory: /dev/shm", 1e6, 5)
    ]  # fmt: skip
    assert not any(event["name"].startswith("memory") for event in of_phase(traced, "C"))


def test_a_run_without_batches_gives_an_empty_trace() -> None:
    assert trace(diagnose(run_of()), None)["traceEvents"] == []


def test_perfettos_own_processor_reads_it(traced: dict[str, Any], tmp_path: Path) -> None:
    processor = pytest.importorskip("perfetto.trace_processor", reason="perfetto is not installed")
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(traced))
    try:
        opened = processor.TraceProcessor(trace=str(path))
    except Exception as error:  # it downloads its program on first use, which may be impossible here
        pytest.skip(f"perfetto's trace processor cannot be had: {type(error).__name__}")
    with opened:
        rows = opened.query("select name, count(*) n from slice group by name")
        counted = {row.name: row.n for row in rows}
        assert counted["step"] == 40
        assert next(iter(opened.query("select count(*) n from flow"))).n == 40
