"""Evidence: sentences that a person can check."""

from __future__ import annotations

from fakes import FakeTraining, diagnosis_of
from unstarve.analyze.timeline import Timeline, build_timeline
from unstarve.analyze.verdict import evidence, walk
from unstarve.model import Cause


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
