"""The questions of the lab on tuning. The recordings are made up; `tests/integration` makes real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from unstarve.labs.lab import Given
from unstarve.labs.specs import tune
from unstarve.labs.specs.tune import FUNCTIONS, LAB, hot_function, rounds_of
from unstarve.labs.started import start

QUESTIONS = {question.key: question for question in LAB.questions}
SEED = 3
HOT = hot_function(SEED)
COLD = next(name for name in FUNCTIONS if name != HOT)


@pytest.fixture(autouse=True)
def _recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The forecast for 4 workers is 3 times as fast, and 4 workers are twice as fast."""
    monkeypatch.setattr(tune, "_steps_and_forecast", lambda _, workers: (5.0 if workers == 1 else 10.0, 3.0))


def wrong(key: str, answer: object) -> str | None:
    return QUESTIONS[key].wrong(Given(answer, Path(), SEED))


def test_every_function_is_drawn() -> None:
    assert {hot_function(seed) for seed in range(100)} == set(FUNCTIONS)


def test_the_drawn_function_works_longest(tmp_path: Path) -> None:
    start("tune", tmp_path, seed=SEED)
    rounds = rounds_of(tmp_path)
    assert set(rounds) == set(FUNCTIONS)
    assert rounds[HOT] >= 10 * max(number for name, number in rounds.items() if name != HOT)


@pytest.mark.parametrize("answer", [HOT, f" {HOT}() "])
def test_the_right_function_passes(answer: str) -> None:
    assert wrong("hot_function", answer) is None


def test_a_wrong_function_fails() -> None:
    assert wrong("hot_function", COLD) == f"{COLD} is not the one."
    assert wrong("hot_function", "sleep") == f"sleep is none of {', '.join(FUNCTIONS)}."


@pytest.mark.parametrize("answer", [3, 2.9, "3.4", 1.6, 5.9])
def test_a_forecast_of_the_right_size_passes(answer: object) -> None:
    assert wrong("forecast_4", answer) is None


@pytest.mark.parametrize("answer", [1.4, 6.1, -3, float("nan")])
def test_a_forecast_that_is_far_off_fails(answer: float) -> None:
    said = wrong("forecast_4", answer)
    assert said is not None
    assert "the baseline forecasts 3.0×" in said


def test_the_measurement_is_the_ratio_of_two_recordings() -> None:
    assert wrong("measured_4", 2.1) is None
    said = wrong("measured_4", 0.9)
    assert said is not None
    assert "4 workers are 2.0× as fast" in said


def test_an_answer_in_words_is_told() -> None:
    assert wrong("measured_4", "twice") == "twice is not a number; write 1.8, for example."
