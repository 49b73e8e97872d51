"""The lab on tuning: each fault is found by name, and the check records the baseline itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from unstarve.labs.specs import tune
from unstarve.labs.specs.tune import LAB, hot_function
from unstarve.labs.started import Started, start


def begin(folder: Path, fault: str) -> Started:
    seed = next(seed for seed in range(1000) if (one := LAB.fault(seed)) is not None and one.name == fault)
    return start("tune", folder, seed=seed)


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout


def recorded(folder: Path, *options: str) -> dict[str, Any]:
    command = ("-m", "unstarve", "run", "-q", "--json", "-", *options)
    told: dict[str, Any] = json.loads(run(*command, cwd=folder))
    return told


@pytest.mark.parametrize(
    ("fault", "options", "others"),
    [
        # A busy machine makes every run wait for cores and for its start.
        ("latency", ("--stop-after", "12", "slow_dataloader.py"), {"contention", "startup"}),
        ("startup", ("slow_dataloader.py", "--epochs", "3"), {"contention"}),
    ],
)
def test_the_report_names_the_fault(
    fault: str, options: tuple[str, ...], others: set[str], tmp_path: Path
) -> None:
    drawn = LAB.fault(begin(tmp_path, fault).seed)
    assert drawn is not None
    waits = recorded(tmp_path, *options)["waits"]
    assert max(waits.keys() - others, key=waits.__getitem__) == drawn.verdict


def test_the_report_names_the_function(tmp_path: Path) -> None:
    started = begin(tmp_path, "function")
    told = recorded(tmp_path, "--stop-after", "20", "slow_dataloader.py", "--prefetch", "4", "--persistent")
    waits = told["waits"]
    assert max(waits.keys() - {"contention", "startup"}, key=waits.__getitem__) == "cpu"
    busy = [one for one in told["functions"] if one["where"] == "cpu"]
    assert max(busy, key=lambda one: one["seconds"])["name"] == hot_function(started.seed)


def test_the_search_without_training_runs(tmp_path: Path) -> None:
    begin(tmp_path, "function")
    script = tmp_path / "functions.py"
    script.write_text(script.read_text().replace("budget_s=20", "budget_s=1"))
    assert "DataLoader(" in run("functions.py", cwd=tmp_path)


def test_the_check_records_the_baseline_itself(tmp_path: Path) -> None:
    begin(tmp_path, "startup")
    (tmp_path / "slow_dataloader.py").write_text("raise SystemExit('not this one')")
    steps_per_s, forecast = tune._steps_and_forecast(tmp_path, 1)
    assert steps_per_s > 0
    assert forecast > 0
    assert not list(tmp_path.glob(".check-*"))
