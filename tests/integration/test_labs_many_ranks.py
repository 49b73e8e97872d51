"""The lab of many ranks, with two processes: what each fault does to the samples, and what passes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from unstarve.labs.all_labs import lab_named
from unstarve.labs.judge import judge
from unstarve.labs.specs import many_ranks
from unstarve.labs.started import start, started_in

SPLIT = """
from rank_training import RankDataset
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def make_loader(folder):
    dataset = RankDataset(folder)
    return DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset))


def begin_epoch(loader, epoch):
    loader.sampler.set_epoch(epoch)
"""
FEWER = SPLIT.replace(
    "    return DataLoader",
    "    dataset = torch.utils.data.Subset(dataset, range(32))\n    return DataLoader",
).replace("\nfrom rank", "\nimport torch\nfrom rank", 1)


def seed_of(fault: str) -> int:
    lab = lab_named("many-ranks")
    return next(seed for seed in range(1000) if (one := lab.fault(seed)) is not None and one.name == fault)


@pytest.fixture(autouse=True)
def _short_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_ranks, "_EPOCHS", 2)


def begun(folder: Path, fault: str, verdict: str, slow_rank: str = "none") -> None:
    start("many-ranks", folder, seed=seed_of(fault))
    (folder / "answers.toml").write_text(f'verdict = "{verdict}"\nslow_rank = "{slow_rank}"\n')
    assert judge(started_in(folder)).committed


def test_only_a_version_that_spreads_all_samples_over_the_ranks_passes(tmp_path: Path) -> None:
    begun(tmp_path, "straggler", "straggler", str(seed_of("straggler") % 2))
    unchanged = judge(started_in(tmp_path))
    assert not unchanged.passed
    assert "Loading takes one rank 13× as long as another" in " ".join(unchanged.lines)

    (tmp_path / "fast_ranks.py").write_text(FEWER)
    fake = judge(started_in(tmp_path))
    assert (fake.passed, fake.lines) == (False, ("In epoch 0, 224 samples are missing, or some come twice.",))

    (tmp_path / "fast_ranks.py").write_text(SPLIT)
    assert judge(started_in(tmp_path)).passed


def test_a_version_that_raises_on_a_rank_is_told(tmp_path: Path) -> None:
    begun(tmp_path, "uneven-ranks", "uneven-ranks")
    (tmp_path / "fast_ranks.py").write_text("def make_loader(folder):\n    raise OSError('no data')\n")
    result = judge(started_in(tmp_path))
    assert (result.passed, result.lines) == (False, ("fast_ranks.py failed: OSError: no data",))


def test_the_recorded_training_shows_both_ranks_side_by_side(tmp_path: Path) -> None:
    start("many-ranks", tmp_path, seed=seed_of("uneven-ranks"))
    command = [sys.executable, "-m", "unstarve", "run", "-q", "-o", "slow.unstarve", "-m"]
    command += ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "slow_ranks.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode != 0, "rank 1 leaves first, and rank 0 cannot go on"
    command = [sys.executable, "by_rank.py", "slow.unstarve"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert "rank 1\n  batches in each epoch  [14, 14, 14]\n" in told.stdout
    assert "rank 0\n  batches in each epoch  [18, 18, " in told.stdout
