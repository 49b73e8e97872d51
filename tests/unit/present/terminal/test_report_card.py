"""The verdict card."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from typing import Any

import pytest
from rich.console import Console

from fake_forecaster import with_forecaster
from fake_gpu import gpu_training
from fakes import FakeTraining, copies_of, diagnosis_of, run_of, simple_run
from unstarve.advise.all_rules import advise
from unstarve.analyze.comparison import compare
from unstarve.analyze.diagnose import analyze_run
from unstarve.model import Cause, Diagnosis, FunctionCost, Rejected, Run
from unstarve.present.exports import report_json as json_view
from unstarve.present.terminal.report_card import print_comparison, print_report


def text_of(run: Run, width: int = 80) -> str:
    out = io.StringIO()
    print_report(analyze_run(run), Console(file=out, width=width))
    return out.getvalue()


def test_the_answer_stands_at_the_top() -> None:
    first = text_of(simple_run([(0.06, 0.04)] * 50)).splitlines()[:2]
    assert "STARVED" in first[0]
    assert "waits for data 60% of the time" in first[1]


def test_a_run_without_a_batch_has_no_duration() -> None:
    assert text_of(run_of()).splitlines()[-1].startswith("0 steps (0 warm-up)")


def test_everything_is_said_within_80_columns() -> None:
    text = text_of(simple_run([(0.06, 0.04)] * 50))
    assert max(len(line) for line in text.splitlines()) <= 80
    for part in (
        "throughput",
        "steps/s",
        "samples/s",
        "wait",
        "p95",
        "train.py:1",
        "unstarve used 0.01% of a core (5.00 µs a step)",
    ):
        assert part in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_any_run_can_be_shown_at_any_width(width: int) -> None:
    empty = run_of()
    short = simple_run([(0.1, 0.1)] * 3)
    unknown = FakeTraining()
    unknown.begin()
    unknown.take(0.1, size=None)
    for run in (empty, short, run_of(unknown, exit_code=None)):
        text = text_of(run, width)
        assert "INCONCLUSIVE" in text
        assert max(len(line) for line in text.splitlines()) <= width


def test_the_place_of_a_loader_is_broken_after_separators() -> None:
    training = FakeTraining()
    training.epoch([(0.06, 0.04)] * 50)
    process = training.process()
    where = "/home/somebody/projects/segmentation/experiments/train_everything.py:41"
    loader = dataclasses.replace(process.loaders[0], where=where)
    run = run_of(dataclasses.replace(process, loaders=(loader,)))
    cells = [
        line[:30].split()[0]
        for line in text_of(run).splitlines()
        if line.startswith("  ") and "/" in line[:30]
    ]
    assert len(cells) > 1
    assert all(cell.endswith("/") for cell in cells)
    assert "train_everything." in text_of(run)
    assert json_view.report(analyze_run(run))["loaders"][0]["where"] == where


def test_on_a_gpu_each_share_says_whose_it_is() -> None:
    text = text_of(run_of(gpu_training(wait_s=0.088, stall_s=0.083)))
    assert "The GPU starved 83% of the time (the host waited 88%)" in text
    assert re.search(r"GPU starved +83% of the time", text)
    assert re.search(r"host waited +88% of the time", text)
    assert "estimated from the GPU's stalls" in text
    assert "waiting for data" not in text
    assert "where the GPU's time went" in text
    blind = text_of(run_of(gpu_training(stall_s=None)))
    assert re.search(r"GPU starved +unknown", blind)
    assert re.search(r"host waited +60% of the time", blind)


def test_what_the_gpus_driver_says_has_a_row_of_what_it_knows() -> None:
    made = gpu_training()
    assert "GPU load" not in text_of(run_of(made))
    made.say(power_mw=412_000, received_bytes_per_s=3e9, jpeg_share=0.38)
    made.step(0.06, 0.02, 0.04)
    assert re.search(r"GPU load +412 W, receives 3.0 GB/s, JPEG engines busy 38%", text_of(run_of(made)))
    made = gpu_training()
    made.say(power_mw=412_000)
    made.step(0.06, 0.02, 0.04)
    assert re.search(r"GPU load +412 W *$", text_of(run_of(made)), re.MULTILINE)


def test_copies_are_told_by_kind_and_per_step() -> None:
    d = diagnosis_of(Cause.COPY, copies=copies_of(0.3))
    text = shown(d)
    assert "copies to the GPU, per step" in text
    assert "timed in 20 steps" in text
    row = next(line for line in text.splitlines() if "38.5 MB" in line or "39 MB" in line)
    assert "training's" in row
    assert "/s" in row
    assert "20.0 ms" in row
    assert "per step" not in shown(diagnosis_of(Cause.CPU))


def test_a_step_and_its_wait_together_are_named_so() -> None:
    text = text_of(simple_run([(0.06, 0.04)] * 50))
    assert re.search(r"step \+ wait +100 ms typical", text)
    assert re.search(r"\n wait +60.0 ms typical", text)


def test_of_many_loaders_the_busiest_are_shown_and_the_rest_counted() -> None:
    training = FakeTraining()
    for number in range(11):
        training.epoch([(0.01, 0.01)] * (30 - number), name=f"loader_{number}")
    text = text_of(run_of(training))
    assert "loader_0" in text
    assert "loader_9" not in text
    assert "and 3 more" in text


def test_names_that_look_like_markup_stay_text() -> None:
    training = FakeTraining()
    training.epoch([(0.06, 0.04)] * 50, name="[red]x[/red]")
    assert "[red]x[/red]" in text_of(run_of(training), 120)


def advised(cause: Cause, **given: Any) -> Diagnosis:
    d = diagnosis_of(cause, **given)
    cost = FunctionCost("Dataset.__getitem__", "/home/me/a/long/path/data.py", 7, Cause.CPU, 9.0, 0.9)
    d = with_forecaster(dataclasses.replace(d, functions=(cost,)))
    return dataclasses.replace(d, advice=advise(d)[0])


def shown(d: Diagnosis, width: int = 80) -> str:
    out = io.StringIO()
    print_report(d, Console(file=out, width=width))
    return out.getvalue()


def test_the_questions_lead_to_the_first_advice_with_its_gain_and_its_line() -> None:
    d = advised(Cause.REMOTE, workers=2, remote_s=0.3, source="DataLoader(mine, num_workers=2)")
    text = shown(d)
    asked = [line for line in text.splitlines() if "?" in line]
    assert len(asked) == 3
    assert asked[-1].split("?")[1].strip() in d.advice[0].title
    assert "≈ 2.5× (" in text
    assert f"DataLoader(mine, num_workers={d.advice[0].change['num_workers']})" in text


def test_at_most_three_pieces_of_advice_are_shown() -> None:
    d = advised(Cause.REMOTE, workers=1, remote_s=0.2, opens=8, system={"filesystems": {"nfs": 9}})
    d = dataclasses.replace(d, advice=d.advice * 3)
    assert len(d.advice) > 3
    assert "3. " in shown(d)
    assert "4. " not in shown(d)


def test_of_what_was_rejected_four_lines_are_shown() -> None:
    d = advised(Cause.REMOTE, workers=2, remote_s=0.3)
    given = [Rejected(f"id-{n}", f"setting {n}", "would not help, 2 cores are busy") for n in range(6)]
    lines = shown(dataclasses.replace(d, rejected=tuple(given))).splitlines()
    first = next(n for n, line in enumerate(lines) if "considered, but not advised" in line)
    assert lines[first + 1].strip() == "setting 0: would not help, 2 cores are busy"
    assert sum("would not help" in line for line in lines) == 4


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("cause", list(Cause))
def test_advice_fits_any_width(cause: Cause, width: int) -> None:
    d = advised(cause, workers=4, cpu_s=0.1, remote_s=0.1, collate_s=0.1, handoff_s=0.1, epochs=3)
    text = shown(d, width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "train.py:1" in text


def test_markup_in_the_users_code_stays_text() -> None:
    d = advised(Cause.REMOTE, workers=2, remote_s=0.3, source="DataLoader(data['[red]x[/red]'])")
    assert "[red]x[/red]" in shown(d)


def test_a_huge_headroom_is_not_told_in_digits() -> None:
    d = analyze_run(simple_run([(0.1, 0.0001)] * 50))
    assert "more than 100×" in d.verdict.headline
    text = shown(d)
    assert "e+" not in text
    assert "more than 100×" in text.split("if loading were free")[1]


def test_advice_in_json_has_the_keys_of_the_schema() -> None:
    d = advised(Cause.REMOTE, workers=2, remote_s=0.3)
    first = json.loads(json.dumps(json_view.report(d)))["advice"][0]
    assert set(first) == {"id", "title", "why", "change", "speedup", "code", "note", "command", "parts"}
    assert set(first["speedup"]) == {"predicted", "low", "high"}
    assert first["change"] == dict(d.advice[0].change)


def test_a_comparison_shows_both_runs_and_its_gates() -> None:
    out = io.StringIO()
    result = compare(simple_run([(0.06, 0.04)] * 99), simple_run([(0.01, 0.04)] * 99), ["wait_share>0.1"])
    print_comparison(result, Console(file=out, width=80))
    text = out.getvalue()
    assert "B is 2.0" in text
    assert "2.00×" in text
    assert "✗ wait_share>0.1" in text


def test_the_json_report_is_complete_and_plain() -> None:
    report = json_view.report(analyze_run(simple_run([(0.06, 0.04)] * 50)))
    back = json.loads(json.dumps(report, allow_nan=False))
    assert back["schema"] == "unstarve.report/1"
    assert set(back) == {
        "schema", "run", "verdict", "wait_share", "stall_share", "throughput", "step_ms", "wait_ms", "budget",
        "waits", "demand", "headroom", "functions", "slow_samples", "unseen_batches", "advice",
        "rejected", "health", "gpu", "copies",
        "overhead", "loaders", "lost", "system", "walk", "whatif", "memory", "profile", "transforms",
        "outside", "io", "perf", "ranks",
    }  # fmt: skip
    assert back["verdict"]["state"] == "starved"
    assert back["loaders"][0]["steps"] == 50
    assert back["headroom"]["method"] == "estimate"
