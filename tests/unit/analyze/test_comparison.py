"""Two runs side by side."""

from __future__ import annotations

import pytest

from fakes import run_of, simple_run
from unstarve.analyze.comparison import compare
from unstarve.errors import UsageError

WOBBLE = [0.9, 1.1, 1.0, 0.95, 1.05]


def wobbly(wait_s: float, compute_s: float, steps: int = 205) -> list[tuple[float, float]]:
    return [(wait_s * WOBBLE[i // 20 % 5], compute_s) for i in range(steps)]


def test_a_real_difference_is_shown_with_its_interval() -> None:
    result = compare(simple_run(wobbly(0.06, 0.04)), simple_run(wobbly(0.01, 0.04)))
    assert result.change is not None
    assert result.change.shown
    assert result.change.low < 2.0 < result.change.high
    assert result.headline.startswith("B is 2.0")


def test_a_difference_within_the_noise_is_not_shown() -> None:
    result = compare(simple_run(wobbly(0.06, 0.04)), simple_run(wobbly(0.0605, 0.04)))
    assert result.change is not None
    assert not result.change.shown
    assert result.headline.startswith("No difference shown")


def test_runs_too_short_to_compare_say_so() -> None:
    result = compare(simple_run([(0.1, 0.1)] * 6), simple_run(wobbly(0.06, 0.04)))
    assert result.change is None
    assert "too short" in result.headline
    assert compare(run_of(), run_of()).change is None


@pytest.mark.parametrize(
    ("gate", "fails"),
    [
        ("throughput<-5%", True),
        ("throughput < -60 %", False),
        ("throughput>-5%", False),
        ("wait_share>+3pt", True),
        ("wait_share>0.5", True),
        ("wait_share>50", True),
        ("wait_share>0.99", False),
        ("step_p95>=1000", False),
        ("step_mean>+10%", True),
    ],
)
def test_gates_on_a_run_that_got_slower(gate: str, fails: bool) -> None:
    result = compare(simple_run(wobbly(0.01, 0.04)), simple_run(wobbly(0.06, 0.04)), [gate])
    assert result.gates[0].failed is fails


def test_a_gate_does_not_fail_on_noise() -> None:
    result = compare(simple_run(wobbly(0.06, 0.04)), simple_run(wobbly(0.061, 0.04)), ["throughput<-0.1%"])
    assert not result.gates[0].failed
    assert "noise" in result.gates[0].reason


def test_a_gate_on_something_unknown_fails() -> None:
    assert compare(run_of(), run_of(), ["throughput<-5%"]).gates[0].failed


@pytest.mark.parametrize("gate", ["", "throughput", "speed<5", "throughput<five", "throughput<-5%%", "<5"])
def test_a_gate_that_cannot_be_understood_names_the_metrics(gate: str) -> None:
    with pytest.raises(UsageError, match="wait_share"):
        compare(run_of(), run_of(), [gate])
