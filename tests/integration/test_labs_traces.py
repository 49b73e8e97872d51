"""The trace lab with real trainings: the answers are in the traces, and wrong ones are told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from unstarve.labs import traced
from unstarve.labs.judge import judge
from unstarve.labs.started import start, started_in
from unstarve.labs.traced import Drawn, drawn


def right_answers(draw: Drawn) -> dict[str, object]:
    return {
        "late_worker": draw.late_worker,
        "pause_batch": draw.pause_step,
        "pause_name": draw.pause_name,
        "pause_ms": 1000 * draw.pause_s * 1.05,
        "largest_phase": draw.largest_phase.upper(),
        "repaired": draw.repaired,
        "report": "report.md",
    }


def answer(folder: Path, answers: dict[str, object]) -> None:
    lines = [f"{key} = {json.dumps(value)}" for key, value in answers.items()]
    (folder / "answers.toml").write_text("\n".join(lines))


def write_report(folder: Path, draw: Drawn) -> None:
    (folder / "report.md").write_text(f"worker {draw.late_worker} is late; a pause to {draw.pause_name}\n")


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout


def unstarve(folder: Path, *arguments: str) -> str:
    return run(folder, sys.executable, "-m", "unstarve", *arguments)


def test_right_answers_pass_and_each_wrong_one_is_told(tmp_path: Path) -> None:
    draw = drawn(start("trace-export", tmp_path, seed=5).seed)
    write_report(tmp_path, draw)
    answer(tmp_path, right_answers(draw))
    assert judge(started_in(tmp_path)).passed

    wrong = {
        "late_worker": draw.late_worker + 1,
        "pause_batch": draw.pause_step + 1,
        "pause_name": "nothing",
        "pause_ms": 2000 * draw.pause_s,
        "largest_phase": "data",
        "repaired": "nothing",
        "report": "none.md",
    }
    answer(tmp_path, wrong)
    result = judge(started_in(tmp_path))
    assert not result.passed
    assert [line.partition(":")[0] for line in result.lines] == list(wrong)


@pytest.mark.parametrize(
    ("text", "said"),
    [("worker … is late", "still has 1 gap (…)"), ("all is well", "does not name the pause")],
)
def test_a_report_with_gaps_or_without_its_findings_is_not_done(text: str, said: str, tmp_path: Path) -> None:
    draw = drawn(start("trace-export", tmp_path, seed=5).seed)
    answer(tmp_path, right_answers(draw))
    (tmp_path / "report.md").write_text(text)
    result = judge(started_in(tmp_path))
    assert not result.passed
    assert said in result.lines[0]


def test_the_answers_are_in_the_traces(tmp_path: Path) -> None:
    draw = drawn(start("trace-export", tmp_path, seed=1).seed)
    window = f"--profile={draw.pause_step - 2},1,3"
    unstarve(tmp_path, "run", "-q", window, "-o", "slow.unstarve", "slow_training.py")
    unstarve(tmp_path, "trace", "slow.unstarve")
    events = json.loads((tmp_path / "slow.trace.json").read_text())["traceEvents"]
    tracks = {one["tid"]: one["args"]["name"] for one in events if one["name"] == "thread_name"}
    fetching = dict.fromkeys(tracks.values(), 0.0)
    for event in events:
        if event["name"] == "fetch":
            fetching[tracks[event["tid"]]] += event["dur"]
    assert max(fetching, key=lambda name: fetching[name]) == f"worker {draw.late_worker}"
    steps = {one["args"]["batch"]: one["dur"] for one in events if one["name"] == "step" and "args" in one}
    assert steps[draw.pause_step] >= draw.pause_s * 1e6

    printed = run(tmp_path, sys.executable, "read_trace.py", "slow.trace.json.gz")
    assert any(draw.pause_name in line for line in printed.splitlines())
    phases = json.loads(unstarve(tmp_path, "report", "slow.unstarve", "--json", "-"))["profile"]["phases"]
    spent = {one["name"]: one for one in phases if one["name"] in traced.PHASES}
    assert set(spent) == set(traced.PHASES)


def test_the_fast_version_has_no_pause_where_that_was_repaired(tmp_path: Path) -> None:
    draw = drawn(start("trace-export", tmp_path, seed=0).seed)
    assert draw.repaired == "pause"
    window = f"--profile={draw.pause_step - 2},1,3"
    unstarve(tmp_path, "run", "-q", window, "-o", "fast.unstarve", "fast_training.py")
    printed = run(tmp_path, sys.executable, "read_trace.py", "fast.trace.json.gz")
    assert "Optimizer.step" in printed
    assert draw.pause_name not in printed
