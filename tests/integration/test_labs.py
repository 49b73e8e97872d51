"""The labs with real processes: a real fix passes, a fake one and a wrong verdict do not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from unstarve.labs import judge as judging
from unstarve.labs.all_labs import lab_named
from unstarve.labs.judge import judge
from unstarve.labs.started import start, started_in

CACHED = """
import unstarve
from synthetic_dataset import SyntheticDataset


def make_loader(folder):
    return unstarve.DataLoader(unstarve.CachedDataset(SyntheticDataset(folder)), batch_size=16, shuffle=True)
"""
SHORTER = """
from synthetic_dataset import SyntheticDataset
from torch.utils.data import DataLoader, Subset


def make_loader(folder):
    return DataLoader(Subset(SyntheticDataset(folder), range(16)), batch_size=16, shuffle=True)
"""


def seed_of(name: str, fault: str) -> int:
    lab = lab_named(name)
    return next(seed for seed in range(1000) if (one := lab.fault(seed)) is not None and one.name == fault)


@pytest.fixture(autouse=True)
def _short_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "_ROUNDS", 2)
    monkeypatch.setattr(judging, "_EPOCHS", 1)
    monkeypatch.setattr(judging, "_ENOUGH_S", 0)


def test_a_loader_that_waits_for_a_server_is_found_and_fixed(tmp_path: Path) -> None:
    start("io-dataloader", tmp_path, seed=seed_of("io-dataloader", "latency"))
    (tmp_path / "answers.toml").write_text('verdict = "remote"\n')
    command = [sys.executable, "-m", "unstarve", "lab", "check", str(tmp_path), "--json", "-"]
    told = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=300).stdout)
    assert (told["schema"], told["committed"], told["passed"]) == ("unstarve.lab/1", True, False)

    (tmp_path / "fast_dataloader.py").write_text(SHORTER)
    fake = judge(started_in(tmp_path))
    assert not fake.passed
    assert "But it does not deliver the same samples as the slow one." in fake.lines

    (tmp_path / "fast_dataloader.py").write_text(CACHED)
    real = judge(started_in(tmp_path))
    assert "does not deliver" not in " ".join(real.lines)
    assert real.measured["wait_share"] < fake.measured["wait_share"]


def test_a_loader_that_raises_is_told(tmp_path: Path) -> None:
    start("io-dataloader", tmp_path, seed=seed_of("io-dataloader", "latency")).commit("remote")
    (tmp_path / "answers.toml").write_text('verdict = "remote"\n')
    (tmp_path / "fast_dataloader.py").write_text("def make_loader(folder):\n    raise OSError('no data')\n")
    result = judge(started_in(tmp_path))
    assert not result.passed
    assert result.lines == ("fast_dataloader.py failed: OSError: no data",)
