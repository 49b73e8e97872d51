from __future__ import annotations

import dataclasses

import pytest

from fakes import FakeTraining, run_of
from unstarve.analyze.diagnose import analyze_run
from unstarve.analyze.timeline import build_timeline
from unstarve.model import Diagnosis, Role, State

TRAIN = [(0.002, 0.098)] * 30
VAL = [(0.07, 0.03)] * 20


def played() -> FakeTraining:
    """A sanity check, then two epochs of training, each with validation inside and after it."""
    training = FakeTraining()
    training.spend(2.0)
    training.validate(VAL[:2])
    training.spend(0.5)
    for _ in range(2):
        training.begin(start_s=0.1)
        for step, (wait_s, compute_s) in enumerate(TRAIN):
            training.take(wait_s)
            training.backward()
            training.spend(compute_s)
            if step == 20:
                training.validate(VAL, no_grad=False)
        training.end()
        training.spend(0.3)
        training.validate(VAL)
        training.spend(0.1)
    training.spend(1.0)
    return training


@pytest.fixture(scope="module")
def diagnosis() -> Diagnosis:
    return analyze_run(run_of(played()))


def test_the_verdict_is_about_the_training_loop_alone(diagnosis: Diagnosis) -> None:
    assert diagnosis.verdict.state is State.FED
    assert diagnosis.steps == 60
    assert [(x.name, x.role) for x in diagnosis.loaders] == [("val", Role.VALIDATION), ("train", Role.TRAIN)]


def test_the_numbers_agree_with_each_other(diagnosis: Diagnosis) -> None:
    measured_s = sum(share.seconds for share in diagnosis.budget)
    assert diagnosis.wait_share == pytest.approx(sum(diagnosis.waits.values()) / measured_s)
    steps = 60 - diagnosis.warmup_steps
    assert diagnosis.throughput.steps_per_s == pytest.approx(steps / measured_s)
    assert diagnosis.step_ms is not None
    assert diagnosis.step_ms.max == pytest.approx(100)  # validation in the middle of a step is no part of it
    starts_s, between_s = 0.1, 0.3 + 0.1
    assert measured_s == pytest.approx(steps * 0.1 + starts_s + between_s)


def test_what_lies_outside_of_the_budget_balances_the_wall_time(diagnosis: Diagnosis) -> None:
    outside = {part.what: part.seconds for part in diagnosis.outside}
    assert list(outside) == ["before training", "warm-up", "validation", "after training"]
    assert outside["before training"] == pytest.approx(1.0 + 2.0 + 0.5)
    assert outside["warm-up"] == pytest.approx(0.1 + 5 * 0.1)
    assert outside["validation"] == pytest.approx((2 + 4 * 20) * 0.1)
    assert outside["after training"] == pytest.approx(0.3 + 0.1 + 1.0)
    budget_s = sum(share.seconds for share in diagnosis.budget)
    assert budget_s + sum(outside.values()) == pytest.approx(diagnosis.wall_s)


def test_a_run_without_any_sign_of_training_is_one_loop() -> None:
    training = FakeTraining()
    training.epoch(TRAIN)
    training.epoch(VAL, "val")
    diagnosis = analyze_run(run_of(training))
    assert diagnosis.steps == 30
    assert "validation" not in {part.what for part in diagnosis.outside}
    assert {loader.role for loader in diagnosis.loaders} == {Role.UNKNOWN}


def test_a_run_that_only_validates_is_judged_by_that_loop() -> None:
    training = FakeTraining()
    training.validate(VAL * 2)
    diagnosis = analyze_run(run_of(training))
    assert diagnosis.verdict.state is State.STARVED
    assert [part.what for part in diagnosis.outside] == ["before training", "warm-up"]
    assert diagnosis.loaders[0].role is Role.VALIDATION


def test_a_run_shorter_than_its_warm_up_balances_too() -> None:
    training = FakeTraining()
    training.train(TRAIN[:3])
    diagnosis = analyze_run(run_of(training))
    assert diagnosis.budget == ()
    assert sum(part.seconds for part in diagnosis.outside) == pytest.approx(diagnosis.wall_s)
    assert diagnosis.wall_s == pytest.approx(training.now_ns / 1e9)


def test_the_wall_time_begins_with_the_command() -> None:
    process = dataclasses.replace(played().process(), clock_offset_ns=10**18, start_ns=10**9)
    run = dataclasses.replace(run_of(process), started_at=1e9 + 0.25)
    assert analyze_run(run).wall_s == pytest.approx((process.end_ns or 0) / 1e9 - 0.25)
    later = dataclasses.replace(run, started_at=1e9 + 7.0)  # after the process's first events
    assert analyze_run(later).wall_s == pytest.approx((process.end_ns or 0) / 1e9 - 1.0)


def test_a_timeline_of_validation_holds_its_epochs_alone() -> None:
    process = played().process()
    timeline = build_timeline(process, 0, [0])
    assert timeline is not None
    assert {batch.loader for batch in timeline.batches} == {0}
    assert timeline.measured_s == pytest.approx((2 + 4 * 20) * 0.1)
    assert timeline.wait_s / timeline.measured_s == pytest.approx(0.7)
