"""The lab of the bottlenecks: each fault is found by name, a real fix passes, a fake one does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from unstarve.errors import UsageError
from unstarve.labs import judge as judging
from unstarve.labs.all_labs import lab_named
from unstarve.labs.judge import judge
from unstarve.labs.started import Started, start, started_in
from unstarve.labs.workload import Workload, joined

LAB = lab_named("bottlenecks")
GUILTY = [fault for fault in LAB.faults if fault.least_speedup is not None]
STACKED = """
from case_dataset import CaseDataset
from torch.utils.data import DataLoader, Subset


def make_loader(folder):
    dataset = CaseDataset(folder, "a")
    return DataLoader(Subset(dataset, range(SAMPLES)), batch_size=16, shuffle=True)
"""


def begin(folder: Path, fault: str) -> Started:
    """Start the lab with this fault in case a."""
    seed = next(seed for seed in range(1000) if LAB.drawn(seed)[0].name == fault)
    started = start(LAB.name, folder, seed=seed)
    try:
        Workload(folder)
    except UsageError as error:
        pytest.skip(str(error))
    return started


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout


@pytest.mark.parametrize("fault", GUILTY, ids=lambda fault: fault.name)
def test_the_report_names_the_fault(fault: judging.Fault, tmp_path: Path) -> None:
    begin(tmp_path, fault.name)
    told = json.loads(
        run("-m", "unstarve", "run", "-q", "--stop-after", "16", "--json", "-", "case_a.py", cwd=tmp_path)
    )
    # A busy machine makes every run wait for cores and for its start.
    waits = {name: s for name, s in told["waits"].items() if name not in ("contention", "startup")}
    assert max(waits, key=waits.__getitem__) == fault.verdict


@pytest.mark.parametrize("fault", GUILTY, ids=lambda fault: fault.name)
def test_a_fault_changes_the_time_and_not_the_samples(fault: judging.Fault, tmp_path: Path) -> None:
    begin(tmp_path, fault.name)
    first, second = Workload(tmp_path, case="a"), Workload(tmp_path)
    samples = [first.sample(index) for index in (0, 7, 255)]
    assert not torch.equal(samples[0], samples[1])
    again = joined(second.collate([second.sample(index) for index in (0, 7, 255)]))
    assert torch.equal(again.reshape(3, 64, 64), torch.stack(samples))


def test_the_stopwatch_shows_the_many_tensors_of_a_slow_hand_off(tmp_path: Path) -> None:
    begin(tmp_path, "handoff")
    told = run("stopwatch.py", "a", cwd=tmp_path)
    assert "tensors in it         128" in told


def test_predict_measure_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "_ROUNDS", 1)
    monkeypatch.setattr(judging, "_EPOCHS", 1)
    monkeypatch.setattr(judging, "_ENOUGH_S", 0)
    started = begin(tmp_path, "collate")
    truth = " ".join(fault.verdict for fault in LAB.drawn(started.seed))
    started.predict("cpu cpu cpu").commit(truth)
    sheet = [f'{key} = "{cause}"' for key, cause in zip(LAB.keys("verdict"), truth.split(), strict=True)]
    (tmp_path / "answers.toml").write_text("\n".join(sheet))

    (tmp_path / "fast_case_a.py").write_text(STACKED.replace("SAMPLES", "16"))
    fake = judge(started_in(tmp_path))
    assert not fake.passed
    assert "But it does not deliver the same samples as the slow one." in fake.lines

    (tmp_path / "fast_case_a.py").write_text(STACKED.replace("SAMPLES", "256"))
    real = judge(started_in(tmp_path))
    assert "does not deliver" not in " ".join(real.lines)
    assert not list(tmp_path.glob(".check-*"))
