"""What passes a lab, and what does not. The measurements are made up; `tests/integration` makes real ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unstarve.errors import UsageError
from unstarve.labs import judge as judging
from unstarve.labs.judge import judge
from unstarve.labs.started import Started, start, started_in

LAB = "io-dataloader"


def seed_of(fault: str) -> int:
    from unstarve.labs.all_labs import lab_named

    return next(seed for seed in range(100) if (f := lab_named(LAB).fault(seed)) and f.name == fault)


@pytest.fixture
def started(tmp_path: Path) -> Callable[[str, str], Started]:
    def begin(fault: str, verdict: str) -> Started:
        start(LAB, tmp_path / "lab", seed=seed_of(fault))
        (tmp_path / "lab" / "answers.toml").write_text(f'verdict = "{verdict}"\n')
        return started_in(tmp_path / "lab")

    return begin


def measured(monkeypatch: pytest.MonkeyPatch, **fast: Any) -> None:
    """Let the slow version take 4 seconds, and the learner's be as told."""
    slow = {"seconds": 4.0, "steps": 9, "wait_share": 0.8, "samples": 9, "digest": "a"}

    def run(file: Path, started: Started) -> dict[str, Any] | str:
        return slow if file.name == started.lab.slow else {**slow, "seconds": 1.0, "wait_share": 0.05, **fast}

    monkeypatch.setattr(judging, "_run", run)


def fix(started: Started) -> Started:
    """Commit the verdict, then change the file."""
    assert judge(started).committed
    assert started.lab.edited is not None
    (started.folder / started.lab.edited).write_text("# mine\n")
    return started_in(started.folder)


def test_without_a_verdict_nothing_is_judged(started: Callable[[str, str], Started]) -> None:
    result = judge(started("cpu", ""))
    assert not result.passed
    assert not result.committed
    assert "Write your verdict" in result.lines[0]


def test_a_verdict_that_is_no_cause_is_an_error(started: Callable[[str, str], Started]) -> None:
    with pytest.raises(UsageError, match=r"slow in answers\.toml is no cause"):
        judge(started("cpu", "slow"))


def test_a_verdict_is_committed_before_anything_changes(started: Callable[[str, str], Started]) -> None:
    begun = started("cpu", "cpu")
    assert judge(begun).committed
    assert started_in(begun.folder).verdict == "cpu"


def test_a_verdict_after_the_fix_is_refused(started: Callable[[str, str], Started]) -> None:
    begun = started("cpu", "cpu")
    (begun.folder / "fast_dataloader.py").write_text("# mine\n")
    result = judge(begun)
    assert not result.passed
    assert "has changed already" in result.lines[0]
    assert started_in(begun.folder).verdict is None


def test_the_committed_verdict_counts_not_a_later_one(
    started: Callable[[str, str], Started], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(monkeypatch)
    begun = fix(started("cpu", "disk"))
    (begun.folder / "answers.toml").write_text('verdict = "cpu"\n')
    result = judge(begun)
    assert not result.passed
    assert "disk, is not what slows this training down" in result.lines[0]


def test_a_real_fix_passes(started: Callable[[str, str], Started], monkeypatch: pytest.MonkeyPatch) -> None:
    measured(monkeypatch)
    result = judge(fix(started("cpu", "cpu")))
    assert result.passed
    assert "4.00× as fast and waits 5% of the time" in result.lines[0]


@pytest.mark.parametrize(
    ("fast", "said"),
    [
        ({"digest": "b"}, "does not deliver the same samples"),
        ({"samples": 8}, "does not deliver the same samples"),
        ({"seconds": 3.9}, "The goal is 1.5×"),
        ({"wait_share": 0.5}, "The goal is to wait less than 10%"),
    ],
)
def test_a_fake_fix_fails(
    fast: dict[str, Any], said: str, started: Callable[[str, str], Started], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(monkeypatch, **fast)
    result = judge(fix(started("cpu", "cpu")))
    assert not result.passed
    assert any(said in line for line in result.lines)


def test_a_loader_that_fails_is_told(
    started: Callable[[str, str], Started], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "_run", lambda file, _: f"{file.name} failed: ImportError")
    result = judge(fix(started("cpu", "cpu")))
    assert (result.passed, result.lines) == (False, ("slow_dataloader.py failed: ImportError",))


def test_where_the_data_is_innocent_doing_nothing_is_right(started: Callable[[str, str], Started]) -> None:
    begun = started("innocent", "fed")
    assert judge(begun).committed
    assert judge(started_in(begun.folder)).passed


def test_where_the_data_is_innocent_a_changed_loader_fails(started: Callable[[str, str], Started]) -> None:
    result = judge(fix(started("innocent", "fed")))
    assert not result.passed
    assert "not guilty" in result.lines[0]


def test_a_lab_with_its_own_verdicts_knows_no_causes(tmp_path: Path) -> None:
    begun = start("basic-profiling", tmp_path, seed=0)
    (tmp_path / "answers.toml").write_text('verdict = "cpu"\n')
    with pytest.raises(
        UsageError, match=r"cpu in answers\.toml is no verdict of this lab; choose one of early"
    ):
        judge(begun)


@pytest.mark.parametrize(
    ("seconds", "rounds", "passes"),
    [
        ([1.0], 3, True),  # clear
        ([1.0, 1.0, 2.2, 1.0], 4, True),  # three rounds leave it open, a fourth does not
        ([1.0, 1.0, 9.0, 1.0, 9.0, 1.0], 6, False),
        ([3.0], 3, False),  # clearly too slow
    ],
)
def test_rounds_are_added_while_the_goal_is_in_doubt(
    seconds: list[float],
    rounds: int,
    passes: bool,
    started: Callable[[str, str], Started],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    same = {"steps": 9, "wait_share": 0.05, "samples": 9, "digest": "a"}
    ran: list[float] = []

    def run(file: Path, started: Started) -> dict[str, Any]:
        if file.name == started.lab.slow:
            return {**same, "seconds": 4.0}
        ran.append(seconds[len(ran) % len(seconds)])
        return {**same, "seconds": ran[-1]}

    monkeypatch.setattr(judging, "_run", run)
    result = judge(fix(started("cpu", "cpu")))
    assert (len(ran), result.passed) == (rounds, passes)
    assert 0 < result.measured["low"] <= result.measured["high"]


def test_a_wrong_verdict_of_the_labs_own_fails_before_anything_is_measured(tmp_path: Path) -> None:
    begun = start("training-loop", tmp_path, seed=0)
    drawn = begun.lab.fault(0)
    assert drawn is not None
    other = next(phase for phase in begun.lab.own_verdicts if phase != drawn.verdict)
    (tmp_path / "answers.toml").write_text(f'verdict = "{other}"\n')
    assert judge(begun).committed
    result = judge(started_in(tmp_path))
    assert not result.passed
    assert f"{other}, is wrong" in result.lines[0]
