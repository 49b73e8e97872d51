"""From a run to what a person is told."""

from __future__ import annotations

import dataclasses

import pytest

from fakes import FakeTraining, run_of, simple_run
from unstarve.analyze.diagnose import analyze_run
from unstarve.analyze.verdict import Thresholds
from unstarve.model import Cause, State


@pytest.mark.parametrize(
    ("wait_s", "state", "cause"),
    [
        (0.020, State.STARVED, Cause.UNKNOWN),
        (0.010, State.TIGHT, Cause.UNKNOWN),
        (0.001, State.FED, Cause.COMPUTE),
    ],
)
def test_the_share_of_time_spent_waiting_decides_the_state(wait_s: float, state: State, cause: Cause) -> None:
    diagnosis = analyze_run(simple_run([(wait_s, 0.08)] * 50))
    assert diagnosis.verdict.state is state
    assert diagnosis.verdict.cause is cause
    assert diagnosis.wait_share == pytest.approx(wait_s / (wait_s + 0.08), abs=0.003)
    assert diagnosis.stall_share == diagnosis.wait_share


def test_thresholds_are_arguments() -> None:
    run = simple_run([(0.01, 0.09)] * 50)
    assert analyze_run(run, Thresholds(starved=0.05)).verdict.state is State.STARVED
    assert analyze_run(run, Thresholds(fewest_steps=100)).verdict.state is State.INCONCLUSIVE


def test_the_budget_and_what_lies_outside_of_it_sum_to_the_wall_time() -> None:
    training = FakeTraining()
    for _ in range(3):
        training.epoch([(0.02, 0.03)] * 20, start_s=0.4)
        training.spend(0.7)
    diagnosis = analyze_run(run_of(training))
    outside = {part.what: part.seconds for part in diagnosis.outside}
    warmup_s = 0.4 + 5 * 0.05
    assert outside == pytest.approx({"before training": 1.0, "warm-up": warmup_s, "after training": 0.7})
    budget_s = sum(share.seconds for share in diagnosis.budget)
    assert budget_s + sum(outside.values()) == pytest.approx(diagnosis.wall_s)
    assert diagnosis.wall_s == pytest.approx(training.now_ns / 1e9)
    assert sum(share.share for share in diagnosis.budget) == pytest.approx(1)
    by_cause = {share.cause: share.seconds for share in diagnosis.budget}
    assert by_cause[Cause.STARTUP] == pytest.approx(2 * (0.4 + 0.02))
    assert by_cause[Cause.HOST] == pytest.approx(2 * 0.7)


def test_too_few_steps_are_inconclusive_and_the_sentence_says_how_many_are_missing() -> None:
    diagnosis = analyze_run(simple_run([(0.5, 0.1)] * 24))
    assert diagnosis.verdict.state is State.INCONCLUSIVE
    assert "19 steps" in diagnosis.verdict.headline
    assert "20" in diagnosis.verdict.headline


def test_no_loader_at_all_tells_about_watch() -> None:
    diagnosis = analyze_run(run_of())
    assert diagnosis.verdict.state is State.INCONCLUSIVE
    assert "unstarve.watch" in diagnosis.verdict.headline
    assert diagnosis.wait_share is None
    assert diagnosis.throughput.steps_per_s is None


def test_a_loader_consumed_in_a_background_thread_is_not_held_against_training() -> None:
    training = FakeTraining(thread=1)
    training.epoch([(1.0, 0.0)] * 50)
    diagnosis = analyze_run(run_of(training))
    assert diagnosis.verdict.state is State.INCONCLUSIVE
    assert "background thread" in diagnosis.verdict.headline
    assert diagnosis.loaders[0].background


def test_ranks_are_merged_and_their_samples_summed() -> None:
    slow, fast = FakeTraining(rank=0), FakeTraining(rank=1)
    slow.epoch([(0.06, 0.04)] * 50)
    fast.epoch([(0.02, 0.08)] * 50)
    diagnosis = analyze_run(run_of(slow, fast))
    assert diagnosis.ranks == 2
    assert diagnosis.steps == 50
    assert diagnosis.wait_share == pytest.approx(0.6, abs=0.01)
    assert diagnosis.throughput.samples_per_s == pytest.approx(2 * 8 / 0.1, rel=0.01)
    assert diagnosis.loaders[0].steps == 100


def test_on_an_accelerator_the_hosts_wait_is_not_called_a_stall() -> None:
    training = FakeTraining(device="NVIDIA H200")
    training.epoch([(0.06, 0.04)] * 50)
    diagnosis = analyze_run(run_of(training))
    assert diagnosis.wait_share is not None
    assert diagnosis.stall_share is None
    assert any("host" in line for line in diagnosis.verdict.evidence)


def test_a_process_that_never_closed_its_record_is_told() -> None:
    run = simple_run([(0.1, 0.1)] * 50)
    killed = dataclasses.replace(run, processes=(dataclasses.replace(run.processes[0], end_ns=None),))
    diagnosis = analyze_run(killed)
    assert diagnosis.cut_short
    assert any("cut short" in message for message in diagnosis.lost)
    assert diagnosis.steps == 50


def test_unknown_batch_sizes_leave_the_sample_rate_unknown() -> None:
    training = FakeTraining()
    training.begin()
    for _ in range(40):
        training.take(0.01, size=None)
        training.spend(0.01)
    training.end()
    diagnosis = analyze_run(run_of(training))
    assert diagnosis.throughput.samples_per_s is None
    assert diagnosis.throughput.steps_per_s == pytest.approx(50, rel=0.01)


def test_overhead_is_stated_per_step_and_as_a_share() -> None:
    diagnosis = analyze_run(simple_run([(0.01, 0.01)] * 50))
    assert diagnosis.overhead.us_per_step == pytest.approx(5.0)
    assert diagnosis.overhead.share == pytest.approx(5e-6 / 0.02, rel=0.01)
