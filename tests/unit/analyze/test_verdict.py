"""Verdicts and their evidence: sentences that a person can check."""

from __future__ import annotations

import dataclasses

import pytest

from fake_gpu import gpu_training
from fakes import FakeTraining, diagnosis_of, run_of, simple_run
from unstarve.analyze.diagnose import analyze_run
from unstarve.analyze.timeline import Timeline, build_timeline
from unstarve.analyze.verdict import Findings, Thresholds, conclude, evidence, walk
from unstarve.model import Cause, Demand, State, Verdict


def timeline() -> Timeline:
    training = FakeTraining()
    training.epoch([(0.1, 0.2)] * 10)
    found = build_timeline(training.process(), 0)
    assert found is not None
    return found


def walked(demand: Demand | None) -> tuple[str, ...]:
    return walk(Findings([timeline()], 0.8, None, {}, {}, demand), Thresholds())


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
    _, loading, stage = walked(demand)
    assert "a batch takes 104 ms to make, with 4 workers one every 101 ms" in loading
    assert stage.endswith("sampler 100 ms")


def test_a_step_beside_the_time_to_make_a_batch_does_not_include_the_wait() -> None:
    demand = diagnosis_of(Cause.CPU, workers=0, cpu_s=0.1).demand
    _, loading, _ = walked(demand)
    assert loading.endswith("a batch takes 100 ms to make, without workers; the step itself takes 200 ms")
    (took,) = evidence([timeline()], Cause.UNKNOWN, None)
    assert took == "10 measured steps took 200 ms on average, plus 90.0 ms of waiting for the next batch"


@pytest.mark.parametrize(
    ("count", "told"),
    [(2, "starting loaders and waiting for first batches"), (0, "waiting for the first batch of each epoch")],
)
def test_the_first_batches_of_epochs_are_named_by_what_they_wait_for(count: int, told: str) -> None:
    training = FakeTraining()
    for _ in range(3):
        training.epoch([(0.005, 0.02)] * 10, start_s=0.5)
    found = build_timeline(training.process(), warmup_steps=0)
    assert found is not None
    demand = diagnosis_of(Cause.CPU, workers=count, cpu_s=0.1).demand
    assert any(line.startswith(f"{told} took ") for line in evidence([found], Cause.CPU, demand))


def test_on_a_gpu_the_headline_is_the_gpus_share_and_names_the_hosts_too() -> None:
    d = analyze_run(run_of(gpu_training(wait_s=0.088, stall_s=0.083)))
    assert d.verdict.state is State.STARVED
    assert d.verdict.headline.startswith("The GPU starved 83% of the time (the host waited 88%)")
    assert "about 5.9×" in d.verdict.headline
    assert d.verdict.evidence[0].endswith("took 17.0 ms on average, plus 83.0 ms in which the GPU starved")
    assert d.walk[0] == "Does training wait?  yes: the GPU starved 83% of the time"


def test_a_gpu_that_is_fed_while_the_host_waits_says_so() -> None:
    d = analyze_run(run_of(gpu_training(wait_s=0.04, stall_s=0.001)))
    assert d.verdict.state is State.FED
    assert d.verdict.headline == "Training is fed: the GPU starved 1% of the time (the host waited 40%)."
    assert d.verdict.evidence[0].startswith("94 measured steps took 99.0 ms on average, plus 1.00 ms")


def test_where_the_gpu_was_not_watched_the_share_is_named_as_the_hosts() -> None:
    d = analyze_run(run_of(gpu_training(stall_s=None)))
    assert d.stall_share is None
    assert d.verdict.headline.startswith("The host waited for data 60% of the time")
    assert "in which the host waited" in d.verdict.evidence[0]
    assert d.walk == ("Does training wait?  yes: the host waited 60% of the time",)


def test_on_a_cpu_training_waits() -> None:
    d = analyze_run(simple_run([(0.06, 0.04)] * 50))
    assert d.verdict.headline.startswith("Training waits for data 60% of the time")
    assert not any(
        "GPU" in line or "host" in line for line in (d.verdict.headline, *d.verdict.evidence, *d.walk)
    )


@pytest.mark.parametrize(("samples", "told"), [(50.0, "2.00 ms per sample"), (None, "100 ms per batch")])
def test_the_cost_is_per_sample_only_where_samples_can_be_counted(samples: float | None, told: str) -> None:
    demand = diagnosis_of(Cause.CPU, workers=0, cpu_s=0.1).demand
    assert demand is not None
    found = evidence([timeline()], Cause.CPU, dataclasses.replace(demand, samples=samples))
    assert f"fetching is 100% CPU time: {told}" in found


def fed_verdict(workers: int, queued_s: float) -> Verdict:
    """40 steps of 0.1 s on two cores, without waits; the training thread queued so long for a core."""
    training = FakeTraining()
    training.epoch([(0.0, 0.1)] * 40)
    process = dataclasses.replace(training.process(), system={"cores": 2})
    found = build_timeline(process, 0)
    assert found is not None
    steps = {Cause.COMPUTE: 4.0 - queued_s, Cause.CONTENTION: queued_s}
    demand = diagnosis_of(Cause.CONTENTION, workers=workers, cpu_s=0.1).demand
    findings = Findings([found], 0.01, None, {}, steps, demand, measured_steps=len(found.measured_batches))
    return conclude(run_of(training), findings, Thresholds())


def test_a_fed_training_without_cores_says_so() -> None:
    verdict = fed_verdict(workers=10, queued_s=1.72)
    assert verdict.cause is Cause.CONTENTION
    assert verdict.headline.endswith("But its steps wait for a free core 43% of the time.")


@pytest.mark.parametrize(("workers", "queued_s"), [(2, 1.72), (10, 0.4)])
def test_cores_that_others_take_or_that_are_hardly_missed_are_not_the_workers_fault(
    workers: int, queued_s: float
) -> None:
    assert fed_verdict(workers, queued_s).cause is Cause.COMPUTE
