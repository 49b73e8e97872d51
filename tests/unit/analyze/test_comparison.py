"""Two runs side by side."""

from __future__ import annotations

import pytest

from fake_gpu import gpu_training
from fakes import FakeTraining, run_of, simple_run
from unstarve.analyze.comparison import compare
from unstarve.errors import UsageError
from unstarve.model import Comparison, Run

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


def epochs(
    *,
    steps: int = 30,
    count: int = 6,
    start_s: float = 0.0,
    between_s: float = 0.0,
    size: int = 8,
    validation: int = 0,
    slow_first: int = 0,
) -> Run:
    """Epochs of steps of 100 ms, half of it waiting."""
    training = FakeTraining()
    for epoch in range(count):
        training.begin("train", start_s)
        for number in range(steps):
            training.take(0.05, "train", size=size)
            training.spend(0.05 if epoch or number >= slow_first else 0.5)
        training.end("train")
        if validation:
            training.epoch([(0.05, 0.05)] * validation, "val")
        training.spend(between_s)
    return run_of(training)


def ratios(result: Comparison) -> tuple[float, float]:
    """B against A by the rows of the table: throughput, and how much shorter the mean step is."""
    rows = {row.metric: row for row in result.rows}
    throughput, step = rows["throughput"], rows["step_mean"]
    return (throughput.b or 0.0) / (throughput.a or 1.0), (step.a or 0.0) / (step.b or 1.0)


@pytest.mark.parametrize(
    ("b", "note"),
    [
        (epochs(steps=60, count=3), None),
        (epochs(slow_first=5), None),
        (epochs(start_s=2.0), "starts of epochs"),
        (epochs(between_s=2.0), "the time between them"),
        (epochs(size=32), "a step has 8 samples in A, 32 in B"),
    ],
    ids=["shorter epochs", "slow warm-up", "slow starts", "checkpoints", "larger batches"],
)
def test_the_headline_is_the_throughputs_and_a_different_step_mean_is_explained(
    b: Run, note: str | None
) -> None:
    result = compare(epochs(), b)
    assert result.change is not None
    throughput, step = ratios(result)
    assert result.change.ratio == pytest.approx(throughput)
    assert result.change.low <= throughput <= result.change.high
    assert "samples per second" in result.headline
    assert (abs(throughput / step - 1) < 0.02) is (note is None)
    assert [note in told for told in result.notes] == ([] if note is None else [True])


def test_validation_of_one_run_alone_is_no_unexplained_difference() -> None:
    result = compare(epochs(), epochs(validation=20))
    assert result.change is not None
    throughput, step = ratios(result)
    assert result.change.ratio == pytest.approx(throughput)
    assert result.notes or throughput == pytest.approx(step, rel=0.02)


def test_the_ends_of_a_short_run_need_no_note() -> None:
    assert compare(simple_run([(0.02, 0.005)] * 40), simple_run([(0.02, 0.005)] * 400)).notes == ()


def test_throughput_is_in_steps_where_samples_are_unknown() -> None:
    training = FakeTraining()
    training.begin()
    for _ in range(99):
        training.take(0.05, size=None)
        training.spend(0.05)
    result = compare(epochs(), run_of(training))
    assert "in steps per second" in result.headline
    assert result.rows[0].unit == "steps/s"


def test_on_a_gpu_both_shares_are_rows_with_a_name() -> None:
    result = compare(run_of(gpu_training()), run_of(gpu_training(stall_s=0.04)), ["stall_share>+5pt"])
    labels = {row.metric: (row.label, row.b) for row in result.rows}
    assert labels["stall_share"] == ("GPU starved", pytest.approx(0.4, abs=0.01))
    assert labels["wait_share"] == ("host waited", pytest.approx(0.6, abs=0.01))
    assert result.gates[0].failed


def test_on_a_cpu_the_wait_is_the_only_share_shown() -> None:
    result = compare(epochs(), epochs(), ["stall_share>0.9"])
    assert [row.label for row in result.rows if row.unit == "%"] == ["waiting for data"]
    assert not result.gates[0].failed
