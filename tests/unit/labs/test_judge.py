"""What passes a lab, and what does not. The measurements are made up; `tests/integration` makes real ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from unstarve.errors import UsageError
from unstarve.labs import harness_process, turns
from unstarve.labs import judge as judging
from unstarve.labs.all_labs import NAMES, lab_named
from unstarve.labs.judge import judge
from unstarve.labs.started import Started, start, started_in

LAB = "io-dataloader"
SAME = {"steps": 9, "wait_share": 0.05, "samples": 9, "digest": "a", "step_cpu_s": 0.5, "step_rounds": 7}


def seed_of(fault: str) -> int:
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
    slow = {**SAME, "seconds": 4.0, "wait_share": 0.8}

    def run(file: Path, started: Started, _: int | None) -> dict[str, Any] | str:
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
        ({"seconds": 3.9}, "Not fast enough: the goal is 1.5×"),
        ({"step_cpu_s": 0.1}, "its training step does less work"),
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
    monkeypatch.setattr(judging, "_run", lambda file, *_: f"{file.name} failed: ImportError")
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
    ("seconds", "rounds", "said"),
    [
        ([1.0], 3, ""),  # clear
        ([1.0, 1.0, 2.2, 1.0], 6, ""),  # three rounds leave it open, three more do not
        ([3.0], 3, "Not fast enough: the goal is 1.5×"),
        ([1.0, 1.0, 9.0, 1.0, 9.0, 1.0], 40, "Too noisy to tell whether that reaches the goal of 1.5×"),
    ],
)
def test_rounds_are_added_while_the_goal_is_in_doubt(
    seconds: list[float],
    rounds: int,
    said: str,
    started: Callable[[str, str], Started],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[float] = []

    def run(file: Path, started: Started, _: int | None) -> dict[str, Any]:
        if file.name == started.lab.slow:
            return {**SAME, "seconds": 4.0}
        ran.append(seconds[len(ran) % len(seconds)])
        return {**SAME, "seconds": ran[-1]}

    monkeypatch.setattr(judging, "_run", run)
    result = judge(fix(started("cpu", "cpu")))
    assert (len(ran), result.passed) == (rounds, not said)
    assert any(line.startswith(said) for line in result.lines)
    assert 0 < result.measured["low"] <= result.measured["high"]
    assert result.measured["rounds"] == rounds


def test_a_fake_is_not_run_again(
    started: Callable[[str, str], Started], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(monkeypatch, digest="b")
    assert judge(fix(started("cpu", "cpu"))).measured["rounds"] == 1


def test_waits_that_are_too_long_in_some_rounds_only_are_noise(
    started: Callable[[str, str], Started], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Path] = []

    def run(file: Path, started: Started, _: int | None) -> dict[str, Any]:
        ran.append(file)
        if file.name == started.lab.slow:
            return {**SAME, "seconds": 4.0, "wait_share": 0.8}
        return {**SAME, "seconds": 1.0, "wait_share": 0.2 if len(ran) > 2 else 0.05}

    monkeypatch.setattr(judging, "_run", run)
    monkeypatch.setattr(turns, "_MOST_ROUNDS", 6)
    result = judge(fix(started("cpu", "cpu")))
    assert not result.passed
    assert "In some rounds it did" in result.lines[1]


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


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_run_for_a_wrong_verdict_and_it_fails(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness_process, "_running", None)
    begun = start(name, tmp_path, seed=3)
    known = begun.lab.own_verdicts or ("cpu", "disk", "fed", "remote")
    truth = [fault.verdict for fault in begun.lab.drawn(3)]
    wrong = {
        key: next(one for one in known if one != right)
        for key, right in zip(begun.lab.keys("verdict"), truth, strict=False)
    }
    if truth:
        begun = begun.predict(" ".join(truth)) if begun.lab.cases else begun
        begun.commit(" ".join(wrong.values()))
    else:
        wrong = {question.key: "of my own" for question in begun.lab.questions}
    (tmp_path / "answers.toml").write_text("".join(f'{key} = "{one}"\n' for key, one in wrong.items()))
    result = judge(started_in(tmp_path))
    assert not result.passed
    assert not result.committed
    assert len(result.lines) >= len(wrong)
