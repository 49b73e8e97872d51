"""The lab on Nsight Systems, as a learner takes it: with the command line and the lab's own scripts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from unstarve.labs.judge import judge
from unstarve.labs.nsys_recording import BOTTLENECKS, bottleneck_of
from unstarve.labs.started import start, started_in


def python(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout


def report(folder: Path, name: str) -> dict[str, Any]:
    told = python(folder, "-m", "unstarve", "import", "--force", f"{name}.sqlite", "--json", "-")
    profile: dict[str, Any] = json.loads(told)["profile"]
    return profile


def answer(folder: Path, **answers: Any) -> None:
    lines = (f"{key} = {json.dumps(value).replace('NaN', 'nan')}\n" for key, value in answers.items())
    (folder / "answers.toml").write_text("".join(lines))


def read_from_the_exports(folder: Path, bottleneck: str) -> dict[str, Any]:
    """All answers, read from the two reports and the printed command."""
    answer(folder, bottleneck=bottleneck)
    for version in ("slow", "fast"):
        python(folder, "record.py", version)
    slow, fast = report(folder, "slow"), report(folder, "fast")
    printed = python(folder, "-m", "unstarve", "nsys", "--print", "train.py").split()
    (copies,) = slow["copies"]
    return {
        "bottleneck": bottleneck,
        "fork_option": next(option for option in printed if "fork" in option),
        "kernel_percent": round(100 * slow["devices"][0]["kernel_s"] / slow["window_s"]),
        "copy_gb_per_s": round(copies["bytes"] / copies["seconds"] / 1e9, 1),
        "kernels_per_step": sum(kernel["calls"] for kernel in slow["kernels"]) // slow["steps"],
        "workers": len({call["process"] for call in slow["calls"]}) - 1,
        "speedup": round(slow["window_s"] / fast["window_s"], 2),
    }


def seed_of(bottleneck: str) -> int:
    return next(seed for seed in range(100) if bottleneck_of(seed) == bottleneck)


def test_who_reads_the_exports_passes_whatever_becomes_of_them(tmp_path: Path) -> None:
    start("nsight", tmp_path, seed=seed_of("copies"))
    answer(tmp_path, **read_from_the_exports(tmp_path, "copies"))
    for path in tmp_path.glob("*.sqlite"):
        path.write_bytes(b"mine")
    (tmp_path / "record.py").write_text("raise SystemExit(1)\n")
    result = judge(started_in(tmp_path))
    assert (result.passed, result.lines) == (True, ())


def test_a_wrong_bottleneck_fails_and_its_remedy_shows_it(tmp_path: Path) -> None:
    start("nsight", tmp_path, seed=seed_of("launch"))
    answer(tmp_path, **read_from_the_exports(tmp_path, "gpu"))
    result = judge(started_in(tmp_path))
    assert not result.passed
    assert [line.partition(":")[0] for line in result.lines] == ["bottleneck", "speedup"]


@pytest.mark.parametrize("number", ["many", 0, -1.0, float("nan")])
def test_every_wrong_answer_is_named(number: str | float, tmp_path: Path) -> None:
    start("nsight", tmp_path, seed=1)
    wrong = next(name for name in BOTTLENECKS if name != bottleneck_of(1))
    answers = dict.fromkeys(started_in(tmp_path).answers(), number) | {"bottleneck": wrong}
    answer(tmp_path, **answers)
    said = judge(started_in(tmp_path)).lines
    assert {line.partition(":")[0] for line in said} == set(answers)


def test_the_fast_version_needs_a_bottleneck_first(tmp_path: Path) -> None:
    start("nsight", tmp_path, seed=1)
    command = [sys.executable, "record.py", "fast"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1
    assert "write your bottleneck into answers.toml first" in done.stderr
    assert not (tmp_path / "fast.sqlite").exists()
