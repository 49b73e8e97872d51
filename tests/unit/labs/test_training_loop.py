"""Answers to the lab about a training loop. What is measured is made up; `tests/integration` measures."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from unstarve.labs.lab import Given
from unstarve.labs.specs import training_loop
from unstarve.model.profile import NamedUse, PhaseUse, Profile

LAB = training_loop.LAB
SEED = next(seed for seed in range(100) if LAB.fault(seed) == LAB.faults[3])  # the optimizer
PROFILE = Profile(
    "torch.profiler",
    "",
    1.0,
    6,
    0.1,
    steps=6,
    phases=(PhaseUse("data", 0.2, 0.0), PhaseUse("forward", 0.1, 0.0), PhaseUse("optimizer", 0.7, 0.0)),
    operators=(NamedUse("aten::mm", 60, 0.6), NamedUse("aten::sub_", 6000, 0.2)),
)


def wrong(key: str, answer: object, folder: Path = Path()) -> str | None:
    question = next(one for one in LAB.questions if one.key == key)
    return question.wrong(Given(answer, folder, SEED))


@pytest.fixture(autouse=True)
def _made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_loop, "_profiled", lambda folder, seed: PROFILE)


@pytest.mark.parametrize("answer", [70, "51", "89%", 75.5])
def test_a_share_near_the_truth_is_right(answer: object) -> None:
    assert wrong("share", answer) is None


def test_another_share_is_wrong() -> None:
    assert "20% is not what the check finds" in str(wrong("share", 20))
    assert "from 0 to 100" in str(wrong("share", 700))
    assert "from 0 to 100" in str(wrong("share", "most"))
    assert "from 0 to 100" in str(wrong("share", "nan"))


def test_calls_are_those_of_one_step() -> None:
    assert wrong("calls", 1000) is None
    assert wrong("calls", "980") is None
    assert "divide by the number of profiled steps" in str(wrong("calls", 6000))
    assert "write a number" in str(wrong("calls", "nan"))
    assert "write a number" in str(wrong("calls", "many"))


@pytest.mark.parametrize(
    ("low", "high", "right"),
    [
        (1.5, 1.7, {"faster"}),
        (0.6, 0.8, {"slower"}),
        (0.98, 1.02, {"same"}),
        (1.02, 1.2, {"faster", "same"}),  # the interval does not decide
        (0.7, 1.5, {"faster", "slower", "same"}),
    ],
)
def test_mixed_precision_is_judged_by_its_interval(
    low: float, high: float, right: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = SimpleNamespace(low=low, high=high)
    monkeypatch.setattr(training_loop, "_mixed", lambda folder, seed: measured)
    assert {answer for answer in ("faster", "slower", "same") if wrong("mixed", answer) is None} == right
    assert "write faster, slower or same" in str(wrong("mixed", "yes"))


def test_a_folder_without_a_trace_is_no_export(tmp_path: Path) -> None:
    assert "has no trace" in str(wrong("tensorboard", "runs", tmp_path))
    (tmp_path / "runs").mkdir()
    trace = tmp_path / "runs" / "mine.pt.trace.json"
    trace.write_text("{}")
    assert "cannot be read" in str(wrong("tensorboard", "runs", tmp_path))
    operator = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 1, "pid": 1, "tid": 1}'
    trace.write_text(f'{{"traceEvents": [{operator}]}}')
    assert "has no profiled steps" in str(wrong("tensorboard", "runs", tmp_path))
