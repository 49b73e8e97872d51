"""The labs about profiling with real processes: both versions run, right answers pass, wrong ones do not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from unstarve.labs.all_labs import lab_named
from unstarve.labs.drawn import amount
from unstarve.labs.lab import Given
from unstarve.labs.started import Started, start, started_in


def begin(name: str, fault: str, folder: Path) -> Started:
    lab = lab_named(name)
    seed = next(seed for seed in range(1000) if (one := lab.fault(seed)) is not None and one.name == fault)
    return start(name, folder, seed=seed)


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_questions_about_a_layer_are_answered_by_measuring(tmp_path: Path) -> None:
    begun = begin("basic-profiling", "middle.rank", tmp_path)
    size = amount(tmp_path, "middle.rank", 8, 16 * 32)
    right = {"operator": "aten::sort", "shape": f"[16, 64, {size}]", "calls": 1}
    wrong = {"operator": "aten::mm", "shape": "[16, 32, 64]", "calls": 2}
    for question in begun.lab.questions:
        assert question.wrong(Given(right[question.key], tmp_path, begun.seed)) is None
        assert question.wrong(Given(wrong[question.key], tmp_path, begun.seed)) is not None


def test_the_operators_name_the_layer_as_the_readme_says(tmp_path: Path) -> None:
    begin("basic-profiling", "late.gate", tmp_path)
    unstarve = (sys.executable, "-m", "unstarve")
    options = ("--profile", "--profile-stacks", "--force", "--quiet", "-o", "slow.unstarve")
    run(tmp_path, *unstarve, "run", *options, "slow_model.py")
    report = (*unstarve, "report", "slow.unstarve")
    assert "aten::addcmul" in run(tmp_path, *report, "--ops")
    assert "aten::addcmul slow_model.py(" in run(tmp_path, *report, "--ops", "--by", "stack")
    by_shape = json.loads(run(tmp_path, *report, "--json", "-"))["profile"]["by_shape"]
    gates = [one for one in by_shape if one["name"].startswith("aten::addcmul [[16, 128, 16]")]
    assert [one["calls"] for one in gates] == [3 * amount(tmp_path, "late.gate", 6, 1600)]
    profiled = run(tmp_path, sys.executable, "profile_forward.py", "fast")
    assert {"early", "middle", "late", "aten::addcmul"} <= set(profiled.split())
    assert "largest difference: 0.0e+00" in run(tmp_path, sys.executable, "compare_models.py")


def test_the_questions_about_a_phase_are_answered_by_measuring(tmp_path: Path) -> None:
    begun = begin("training-loop", "optimizer", tmp_path)
    run(tmp_path, sys.executable, "profile_training.py", "slow")
    wrong = {"share": 700, "calls": 1, "mixed": "yes", "tensorboard": "nowhere"}
    for question in begun.lab.questions:
        assert question.wrong(Given(wrong[question.key], tmp_path, begun.seed)) is not None
        if question.key == "tensorboard":
            assert question.wrong(Given("tensorboard-slow", tmp_path, begun.seed)) is None


def test_the_loop_is_profiled_as_the_readme_says(tmp_path: Path) -> None:
    begin("training-loop", "backward", tmp_path)
    unstarve = (sys.executable, "-m", "unstarve")
    window = ("--profile=5,2,6", "--quiet", "-o")
    run(tmp_path, *unstarve, "run", *window, "full.unstarve", "slow_training.py")
    run(tmp_path, *unstarve, "run", *window, "mixed.unstarve", "slow_training.py", "--mixed")
    assert "operators that changed" in run(tmp_path, *unstarve, "compare", "full.unstarve", "mixed.unstarve")

    def calls(run_file: str) -> dict[str, int]:
        profile = json.loads(run(tmp_path, *unstarve, "report", run_file, "--json", "-"))["profile"]
        assert profile["steps"] == 6
        return {one["name"]: one["calls"] for one in profile["operators"]}

    full, mixed = calls("full.unstarve"), calls("mixed.unstarve")
    assert mixed["aten::copy_"] > full["aten::copy_"]
    question = next(one for one in lab_named("training-loop").questions if one.key == "calls")
    most, seed = max(full.values()), started_in(tmp_path).seed
    assert question.wrong(Given(most / 6, tmp_path, seed)) is None
    assert question.wrong(Given(most, tmp_path, seed)) is not None
