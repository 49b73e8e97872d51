"""Verdicts and their evidence: sentences that a person can check."""

from __future__ import annotations

import dataclasses

import pytest

from fakes import FakeTraining, diagnosis_of, run_of
from unstarve.analyze.timeline import Timeline, build_timeline
from unstarve.analyze.verdict import Findings, Thresholds, conclude, evidence, walk
from unstarve.model import Cause, Verdict


def timeline() -> Timeline:
    training = FakeTraining()
    training.epoch([(0.1, 0.2)] * 10)
    found = build_timeline(training.process(), 0)
    assert found is not None
    return found


def test_missed_cores_are_told_as_a_share_of_the_waiting() -> None:
    demand = diagnosis_of(Cause.CONTENTION, cpu_s=0.09, queued_s=0.01).demand
    waits = {Cause.CONTENTION: 3.0, Cause.HANDOFF: 1.0}
    told = evidence([timeline()], Cause.CONTENTION, demand, None, waits)
    assert "during 75% of the waiting, the next task was runnable but no core was free" in told
    assert not any("fetching in" in line for line in told)
    assert not any(
        "of the waiting" in line for line in evidence([timeline()], Cause.CPU, demand, None, waits)
    )


def test_workers_do_not_share_the_samplers_work() -> None:
    demand = diagnosis_of(Cause.SAMPLER, workers=4, cpu_s=0.004, sampler_s=0.1).demand
    _, loading, stage = walk(True, 0.8, 0.11, demand)
    assert "a batch takes 104 ms to make, with 4 workers one every 101 ms" in loading
    assert stage.endswith("sampler 100 ms")


def fed_verdict(workers: int, queued_s: float) -> Verdict:
    """40 steps of 0.1 s on two cores, without waits; the training thread queued so long for a core."""
    training = FakeTraining()
    training.epoch([(0.0, 0.1)] * 40)
    process = dataclasses.replace(training.process(), system={"cores": 2})
    found = build_timeline(process, 0)
    assert found is not None
    steps = {Cause.COMPUTE: 4.0 - queued_s, Cause.CONTENTION: queued_s}
    demand = diagnosis_of(Cause.CONTENTION, workers=workers, cpu_s=0.1).demand
    return conclude(run_of(training), Findings([found], 0.01, None, {}, steps, demand), Thresholds())


def test_a_fed_training_without_cores_says_so() -> None:
    verdict = fed_verdict(workers=10, queued_s=1.72)
    assert verdict.cause is Cause.CONTENTION
    assert verdict.headline.endswith("But its steps wait for a free core 43% of the time.")


@pytest.mark.parametrize(("workers", "queued_s"), [(2, 1.72), (10, 0.4)])
def test_cores_that_others_take_or_that_are_hardly_missed_are_not_the_workers_fault(
    workers: int, queued_s: float
) -> None:
    assert fed_verdict(workers, queued_s).cause is Cause.COMPUTE
