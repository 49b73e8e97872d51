"""The labs that compare two versions, really run: a solution computes the same, a fake one does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import lab_solutions as solutions
import pytest
import torch

from unstarve.errors import UsageError
from unstarve.labs import drawn, versions
from unstarve.labs import judge as judging
from unstarve.labs.harness import imported
from unstarve.labs.harness_process import told_by
from unstarve.labs.judge import judge
from unstarve.labs.specs import basic_profiling, tune
from unstarve.labs.started import start, started_in
from unstarve.labs.workload import Workload

LOADERS = ("io-dataloader", "bottlenecks", "tune")
MODELS = ("basic-profiling", "training-loop")
SKIPS_THE_STEP = """
import time
import torch
import unstarve.labs.harness
import unstarve.labs.step
from synthetic_dataset import SyntheticDataset
from torch.utils.data import DataLoader

unstarve.labs.step.Step.__call__ = lambda step, batch: None
torch.tanh = lambda value: value.detach()
torch.Tensor.__matmul__ = lambda one, other: one
torch.Tensor.backward = lambda value: None
time.perf_counter = unstarve.labs.harness.perf_counter = lambda: 0.0
unstarve.labs.harness.thread_time = lambda: 1.0


def make_loader(folder):
    return DataLoader(SyntheticDataset(folder), batch_size=16, shuffle=True)
"""
WRITES_ITS_OWN_RESULT = """
import json
import os

print(json.dumps({"measured": {"seconds": 0.001, "samples": 256, "digest": "the same"}}), flush=True)
os._exit(0)
"""


@pytest.fixture(autouse=True)
def _short_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "_EPOCHS", 1)
    monkeypatch.setattr(judging, "_ENOUGH_S", 0)  # one round


@pytest.mark.parametrize("name", LOADERS)
def test_every_solution_delivers_the_same(name: str, tmp_path: Path) -> None:
    for fault, changes in solutions.SOLUTIONS[name].items():
        if not changes:
            continue  # nothing to fix
        folder = tmp_path / fault
        started = solutions.begin(name, fault, folder)
        if fault == "disk":
            try:
                Workload(folder)
            except UsageError:
                continue  # there is no disk here
        solutions.solve(started)
        assert started.lab.edited is not None
        files = folder / started.lab.slow, folder / started.lab.edited
        results = [told_by(started.lab.harness, file, 1, 1) for file in files]
        told = {(one["digest"], one.get("steps")) if isinstance(one, dict) else one for one in results}
        assert len(told) == 1, (fault, told)
        assert isinstance(results[0], dict), results


@pytest.mark.parametrize("name", MODELS)
def test_every_solution_computes_the_same_and_a_fake_one_does_not(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawn, "amount", lambda _, __, small, large: small)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for fault, changes in solutions.SOLUTIONS[name].items():
        started = solutions.begin(name, fault, tmp_path / fault)
        assert started.lab.edited is not None
        file = started.folder / started.lab.edited
        original = file.read_text()
        solutions.change(file, changes)
        assert versions._same({5: imported(file).make(started.folder)(5)}, started.folder), fault
    file.write_text(original)
    solutions.change(file, solutions.FAKES[name])
    assert not versions._same({5: imported(file).make(started.folder)(5)}, started.folder)
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", [*LOADERS, "basic-profiling"])
def test_a_fake_solution_fails(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "_steps_and_forecast", None)  # only the versions are run
    monkeypatch.setattr(basic_profiling, "_profiled", None)
    started = solutions.begin(name, next(iter(solutions.SOLUTIONS[name])), tmp_path)
    verdicts = dict(zip(started.lab.keys("verdict"), (started.verdict or "").split(), strict=True))
    (tmp_path / "answers.toml").write_text("".join(f'{key} = "{one}"\n' for key, one in verdicts.items()))
    assert started.lab.edited is not None
    solutions.change(tmp_path / started.lab.edited, solutions.FAKES[name])
    result = judge(started_in(tmp_path))
    assert not result.passed
    assert result.lines[1].startswith("But it does not "), result.lines


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SKIPS_THE_STEP, "But its training step does less work."),
        (WRITES_ITS_OWN_RESULT, "fast_dataloader.py failed: its process ended with exit code 0"),
        ("raise OSError('no data')", "fast_dataloader.py failed: OSError: no data"),
        ("import sys; sys.exit('enough')", "fast_dataloader.py failed: SystemExit: enough"),
    ],
)
def test_a_version_that_tampers_or_fails_is_told(text: str, said: str, tmp_path: Path) -> None:
    started = solutions.begin("io-dataloader", "cpu", tmp_path)
    (started.folder / "answers.toml").write_text('verdict = "cpu"\n')
    (tmp_path / "fast_dataloader.py").write_text(text)
    result = judge(started_in(tmp_path))
    assert not result.passed
    assert said in result.lines


def test_the_command_line_commits_a_verdict(tmp_path: Path) -> None:
    start("io-dataloader", tmp_path, seed=1)
    (tmp_path / "answers.toml").write_text('verdict = "remote"\n')
    command = [sys.executable, "-m", "unstarve", "lab", "check", str(tmp_path), "--json", "-"]
    told = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=300).stdout)
    assert (told["schema"], told["committed"], told["passed"]) == ("unstarve.lab/1", True, False)
