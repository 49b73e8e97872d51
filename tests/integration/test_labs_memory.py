"""The memory lab with real processes: each leak is found and stopped; a fake fix and a wrong answer fail."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from lab_solutions import SOLUTIONS

from unstarve.labs.all_labs import lab_named
from unstarve.labs.judge import judge
from unstarve.labs.lab import Given
from unstarve.labs.leaks import drawn
from unstarve.labs.specs import memory_profiling
from unstarve.labs.started import start, started_in

LAB = "memory-profiling"
FIXES = {fault: changes for fault, changes in SOLUTIONS[LAB].items() if changes}
FAKE = (
    ("self.losses.add(self.loss(batch))", "pass"),
    ("self.recent.add(batch)", "self.recent.add(batch * 2)"),
    ("CachingDataset", "SampleDataset"),
)


@pytest.fixture(autouse=True)
def _short_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_profiling, "_EPOCHS", 3)


def begin(folder: Path, leak: str) -> None:
    lab = lab_named(LAB)
    seed = next(seed for seed in range(1000) if (one := lab.fault(seed)) is not None and one.name == leak)
    start(LAB, folder, seed=seed).commit(leak)


def change(folder: Path, changes: tuple[tuple[str, str], ...]) -> None:
    text = (lab_named(LAB).folder / "fixed_training.py").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "fixed_training.py").write_text(text)


@pytest.mark.parametrize("leak", sorted(FIXES))
def test_a_leak_is_stopped_by_a_real_fix(leak: str, tmp_path: Path) -> None:
    begin(tmp_path, leak)
    change(tmp_path, FIXES[leak])
    assert memory_profiling.trial(tmp_path, 0)[0]


def test_a_fake_fix_is_told_all_that_is_missing(tmp_path: Path) -> None:
    begin(tmp_path, "batches")
    change(tmp_path, FAKE)
    passed, lines = memory_profiling.trial(tmp_path, 0)
    assert not passed
    assert lines[1:] == (
        "But self.losses does not have the same loss of every step.",
        "But self.recent does not have the last two batches.",
        "But samples were decoded 768 times: the cache is gone.",
        "So it still leaks.",
    )


def test_a_leak_that_moves_to_a_worker_is_still_a_leak(tmp_path: Path) -> None:
    begin(tmp_path, "cache")
    change(tmp_path, (("shuffle=True", "shuffle=True, num_workers=1, persistent_workers=True"),))
    passed, lines = memory_profiling.trial(tmp_path, 0)
    assert not passed
    assert lines[-1] == "So it still leaks."


def test_where_nothing_leaks_doing_nothing_is_right(tmp_path: Path) -> None:
    begin(tmp_path, "none")
    assert memory_profiling.trial(tmp_path, 0)[0]
    change(tmp_path, FIXES["losses"])
    assert memory_profiling.trial(tmp_path, 0) == (
        False,
        ("Nothing leaks: leave fixed_training.py as it was.",),
    )


def test_a_batch_size_is_tried(tmp_path: Path) -> None:
    begin(tmp_path, "none")
    with (tmp_path / "choose_batch.py").open("a") as script:
        script.write(
            "    print('fits:', unstarve.largest_batch("
            "model, lambda n: make_batch(HERE, n), limit=limit, sizes=(512, 1024, 1536)))\n"
        )
    command = [sys.executable, str(tmp_path / "choose_batch.py")]
    printed = subprocess.run(command, capture_output=True, check=True, text=True, timeout=300).stdout
    found = re.search(r"fits: (\d+)", printed)
    assert found is not None
    wrong = next(one for one in lab_named(LAB).questions if one.key == "batch_size").wrong
    assert wrong(Given(int(found[1]), tmp_path, 0)) is None
    assert "uses only" in str(wrong(Given(64, tmp_path, 0)))
    assert "more than" in str(wrong(Given(int(found[1]) * 3 // 2, tmp_path, 0)))
    assert "does not fit" in str(wrong(Given(10**9, tmp_path, 0)))
    assert wrong(Given("many", tmp_path, 0)) == "write a number of samples."


def test_a_whole_check_names_every_wrong_answer(tmp_path: Path) -> None:
    begin(tmp_path, "none")
    (tmp_path / "answers.toml").write_text('verdict = "none"\nkept_mb = 3\nbatch_size = ""\n')
    result = judge(started_in(tmp_path))
    assert not result.passed
    assert result.lines[0] == "Right: nothing leaks, and there is nothing to fix."
    assert "kept_mb: 3 MB is not what every step keeps" in result.lines[1]
    assert result.lines[2] == "batch_size in answers.toml is still empty."


def test_what_a_leak_keeps_is_asked_for_with_a_tolerance(tmp_path: Path) -> None:
    begin(tmp_path, "losses")
    kept = drawn(tmp_path).kept_bytes / 1e6
    wrong = next(one for one in lab_named(LAB).questions if one.key == "kept_mb").wrong
    assert wrong(Given(f"{kept * 1.5}", tmp_path, 0)) is None
    assert wrong(Given(kept * 2.5, tmp_path, 0)) is not None
    assert wrong(Given(kept / 2, tmp_path, 0)) is not None
    assert wrong(Given("much", tmp_path, 0)) == "write a number of megabytes."
