"""Labs of several cases: predict, then measure, then fix. The measurements are made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from unstarve.errors import UsageError
from unstarve.labs import judge as judging
from unstarve.labs.all_labs import lab_named
from unstarve.labs.judge import judge
from unstarve.labs.started import Started, start, started_in

LAB = lab_named("bottlenecks")
SEED = 4
TRUTH = [fault.verdict for fault in LAB.drawn(SEED)]
WRONG = ["sampler", *TRUTH[1:]]


@pytest.fixture
def started(tmp_path: Path) -> Started:
    return start(LAB.name, tmp_path / "lab", seed=SEED)


def answer(started: Started, kind: str, causes: list[str]) -> Started:
    """Write a prediction or a verdict for each case into answers.toml."""
    lines = [f'{key} = "{cause}"\n' for key, cause in zip(LAB.keys(kind), causes, strict=True)]
    path = started.folder / "answers.toml"
    kept = [line for line in path.read_text().splitlines(True) if not line.startswith(f"{kind}_")]
    path.write_text("".join([*kept, *lines]))
    return started_in(started.folder)


def test_cases_have_different_faults_and_the_first_is_guilty() -> None:
    for seed in range(200):
        drawn = LAB.drawn(seed)
        assert len(set(drawn)) == len(LAB.cases) == 3
        assert drawn[0].least_speedup is not None
        assert drawn[0] is LAB.fault(seed)


def test_predictions_come_before_verdicts(started: Started) -> None:
    result = judge(answer(started, "verdict", TRUTH))
    assert not result.committed
    assert "Write your predictions" in result.lines[0]


def test_one_missing_prediction_is_not_enough(started: Started) -> None:
    result = judge(answer(started, "prediction", ["cpu", "", "disk"]))
    assert not result.committed
    assert started_in(started.folder).prediction is None


def test_a_prediction_that_is_no_cause_is_an_error(started: Started) -> None:
    with pytest.raises(UsageError, match=r"slow in answers\.toml is no cause"):
        judge(answer(started, "prediction", ["cpu", "slow", "disk"]))


def test_a_prediction_cannot_be_changed_by_hand(started: Started) -> None:
    judge(answer(started, "prediction", WRONG))
    state = started.folder / "lab.toml"
    state.write_text(state.read_text().replace("sampler", TRUTH[0]))
    with pytest.raises(UsageError, match="was changed by hand"):
        started_in(started.folder)


def test_a_wrong_verdict_names_the_case(started: Started) -> None:
    assert judge(answer(started, "prediction", TRUTH)).committed
    assert judge(answer(started, "verdict", WRONG)).committed
    result = judge(answer(started, "verdict", TRUTH))
    assert not result.passed
    assert result.lines[0] == "Case a: your verdict, sampler, is not what slows this training down."
    assert "Start over with another draw" in result.lines[1]


def test_wrong_predictions_do_not_fail_the_lab(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(file: Path, *_: object) -> dict[str, Any]:
        seconds = 4.0 if file.name == "case_a.py" else 1.0
        return {
            "seconds": seconds,
            "steps": 9,
            "wait_share": 0.1,
            "samples": 9,
            "digest": "a",
            "step_cpu_s": 1,
        }

    monkeypatch.setattr(judging, "_run", run)
    assert judge(answer(started, "prediction", WRONG)).committed
    assert judge(answer(started, "verdict", TRUTH)).committed
    (started.folder / "fast_case_a.py").write_text("# mine\n")
    result = judge(started_in(started.folder))
    assert result.passed
    assert result.lines[-1] == "Your predictions were right in 2 of 3 cases."
