"""What passes the lab "When it breaks". The trainings are made up; `tests/integration` runs them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from unstarve.labs.all_labs import lab_named
from unstarve.labs.breakage import shared_files
from unstarve.labs.judge import Judgement, judge
from unstarve.labs.specs import when_it_breaks
from unstarve.labs.specs.when_it_breaks import drawn_kinds, trouble
from unstarve.labs.started import start, started_in

HEALTHY = {"epochs": [list(range(256))] * 3, "grown_bytes": 5_000_000, "restarts_workers": False}
SEED = next(seed for seed in range(100) if "none" in drawn_kinds(seed).values())


def check(folder: Path, causes: object) -> Judgement:
    if not (folder / "lab.toml").exists():
        start("when-it-breaks", folder, seed=SEED)
    (folder / "answers.toml").write_text(f"causes = {json.dumps(causes)}\n")
    return judge(started_in(folder))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Let every training go as told."""

    def tell(how: Any) -> None:
        monkeypatch.setattr(when_it_breaks, "told_by", lambda *_: how)

    return tell


def test_each_script_is_the_one_that_was_drawn(tmp_path: Path) -> None:
    start("when-it-breaks", tmp_path, seed=SEED)
    family = lab_named("when-it-breaks").folder / "family"
    for script, kind in drawn_kinds(SEED).items():
        assert (tmp_path / script).read_bytes() == (family / f"{kind}.py").read_bytes()


def test_every_kind_is_drawn_and_none_twice() -> None:
    drawn = [list(drawn_kinds(seed).values()) for seed in range(100)]
    assert all(len(set(kinds)) == 4 for kinds in drawn)
    family = lab_named("when-it-breaks").folder / "family"
    assert {kind for kinds in drawn for kind in kinds} == {path.stem for path in family.glob("*.py")}


@pytest.mark.parametrize("joined", [False, True])
def test_right_causes_and_healthy_trainings_pass(
    joined: bool, tmp_path: Path, told: Callable[[Any], None]
) -> None:
    told(HEALTHY)
    causes = list(drawn_kinds(SEED).values())
    assert check(tmp_path, ", ".join(causes) if joined else causes).passed


def test_wrong_causes_fail_whatever_the_trainings_do(tmp_path: Path, told: Callable[[Any], None]) -> None:
    told(HEALTHY)
    first, second, *others = drawn_kinds(SEED).values()
    result = check(tmp_path, [second, first, *others])
    assert (result.passed, result.lines) == (False, ("causes: 2 of 4 are right.",))


@pytest.mark.parametrize("causes", [["none"], "slow slow slow slow", 3, [["none"]] * 4])
def test_an_answer_that_is_none_is_told(causes: object, tmp_path: Path) -> None:
    result = check(tmp_path, causes)
    assert not result.passed
    assert "name one of worker-timeout, fork-after-threads" in result.lines[0]


def test_a_healthy_script_has_to_stay_as_it_was(tmp_path: Path, told: Callable[[Any], None]) -> None:
    told(HEALTHY)
    causes = drawn_kinds(SEED)
    check(tmp_path, list(causes.values()))
    healthy = next(script for script, kind in causes.items() if kind == "none")
    (tmp_path / healthy).write_text("# mine\n")
    result = check(tmp_path, list(causes.values()))
    assert (result.passed, result.lines) == (
        False,
        (f"causes: Nothing was wrong with {healthy}: leave it as it was.",),
    )


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"epochs": [list(range(255))] * 3}, "does not train on every sample"),
        ({"epochs": [list(range(256))]}, "does not train on every sample"),
        ({"grown_bytes": 64_000_000}, "holds 64 MB more at the end than after its first epoch."),
        ({"restarts_workers": True, "grown_bytes": 64_000_000}, "restarts its workers in every epoch."),
    ],
)
def test_a_fake_fix_is_seen_in_how_a_training_goes(how: dict[str, Any], said: str) -> None:
    assert trouble(HEALTHY) is None
    assert said in str(trouble({**HEALTHY, **how}))


def test_a_training_that_still_fails_is_told(tmp_path: Path, told: Callable[[Any], None]) -> None:
    told("x.py failed: MemoryError")
    result = check(tmp_path, list(drawn_kinds(SEED).values()))
    assert not result.passed
    assert result.lines[0].startswith("causes: x.py failed: MemoryError")


def test_batches_in_shared_memory_are_counted_once_for_each_file() -> None:
    before = shared_files(os.getpid())
    batch = torch.ones(1 << 16).share_memory_()  # type: ignore[no-untyped-call]  # torch's
    again = os.open(f"/proc/self/fd/{_descriptor(shared_files(os.getpid()), before)}", os.O_RDONLY)
    new = {inode: used for inode, used in shared_files(os.getpid()).items() if inode not in before}
    os.close(again)
    assert list(new.values()) == [batch.nbytes]


def _descriptor(after: dict[int, int], before: dict[int, int]) -> str:
    (inode,) = after.keys() - before.keys()
    return next(link.name for link in Path("/proc/self/fd").iterdir() if link.stat().st_ino == inode)
