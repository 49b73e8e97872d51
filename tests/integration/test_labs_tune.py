"""The lab on tuning: each fault is found by name, a real fix passes, a fake one does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from unstarve.labs import judge as judging
from unstarve.labs.judge import judge
from unstarve.labs.specs import tune
from unstarve.labs.specs.tune import LAB, hot_function
from unstarve.labs.started import Started, start, started_in

ONCE = """
import functools


@functools.lru_cache
def weights(rounds, shift):
    weight = np.ones((64, 64), np.float32)
    for _ in range(rounds):
        weight = np.sqrt(weight + shift)
    return weight


def {name}(image, rounds):
    return image * weights(rounds, {shift})


class Photos"""


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


def test_a_cheaper_function_passes_and_fewer_samples_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "_ROUNDS", 1)
    monkeypatch.setattr(judging, "_EPOCHS", 1)
    monkeypatch.setattr(judging, "_ENOUGH_S", 0)
    monkeypatch.setattr(tune, "_steps_and_forecast", lambda *_: (1.0, 1.0))
    started = begin(tmp_path, "function").commit("cpu")
    name = hot_function(started.seed)
    answers = f'verdict = "cpu"\nforecast_4 = 1\nmeasured_4 = 1\nhot_function = "{name}"\n'
    (tmp_path / "answers.toml").write_text(answers)
    fast = tmp_path / "fast_dataloader.py"
    original = fast.read_text()

    fast.write_text(original.replace("Photos(folder)", "list(map(Photos(folder).__getitem__, range(16)))"))
    fake = judge(started_in(tmp_path))
    assert not fake.passed
    assert "But it does not deliver the same samples as the slow one." in fake.lines

    fast.write_text(original.replace("num_workers=1", "num_workers=0"))
    photos = tmp_path / "photos.py"
    shift = photos.read_text().partition(f"def {name}(")[2].partition("weight + ")[2].partition(")")[0]
    photos.write_text(
        photos.read_text().replace("class Photos", ONCE.format(name=name, shift=shift).lstrip())
    )
    real = judge(started_in(tmp_path))
    told = " ".join(real.lines)
    assert "as fast" in told
    assert "does not deliver" not in told
    assert name not in told
