"""Seconds per cause sum to the wall time, whatever was recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fake_work import work_of
from fakes import FakeTraining
from unstarve.analyze.batch_production import EpochProduction, MadeBatch
from unstarve.analyze.budget import as_shares, causes_of, split_steps
from unstarve.analyze.timeline import build_timeline
from unstarve.model import Cause, Process, Sampled


def sampled(*found: tuple[str, bool, float]) -> Process:
    """A process whose sampler found (place, torch, seconds)."""
    return replace(
        FakeTraining().process(),
        sampled=tuple(Sampled(place, "f", "a.py", 1, True, torch, s) for place, torch, s in found),
    )


def test_a_run_whose_inside_is_not_seen_balances() -> None:
    training = FakeTraining()
    training.epoch([(0.1, 0.2)] * 10, start_s=0.5)
    training.spend(0.4)
    training.epoch([(0.1, 0.2)] * 10, start_s=0.5)
    timeline = build_timeline(training.process(), 0)
    assert timeline is not None
    causes = causes_of(timeline.spans, timeline.process, {})
    assert sum(causes.values()) == pytest.approx(timeline.wall_s)
    assert causes[Cause.STARTUP] == pytest.approx(2 * (0.5 + 0.1))
    assert causes[Cause.UNKNOWN] == pytest.approx(2 * 9 * 0.1)
    assert causes[Cause.COMPUTE] == pytest.approx(2 * 10 * 0.2)
    assert causes[Cause.HOST] == pytest.approx(0.4)


def test_indices_that_are_drawn_in_iter_are_the_samplers() -> None:
    training = FakeTraining()
    training.epoch([(0.1, 0.2)] * 10, start_s=0.5)
    training.epochs = [replace(epoch, sampler_ns=300_000_000) for epoch in training.epochs]
    timeline = build_timeline(training.process(), 0)
    assert timeline is not None
    causes = causes_of(timeline.spans, timeline.process, {})
    assert causes[Cause.SAMPLER] == pytest.approx(0.3)
    assert causes[Cause.STARTUP] == pytest.approx(0.2 + 0.1)
    assert sum(causes.values()) == pytest.approx(timeline.wall_s)


def test_waits_that_were_explained_balance_too() -> None:
    training = FakeTraining()
    training.epoch([(0.1, 0.2)] * 10)
    training.batches = [
        batch._replace(task=batch.position, step_queued_ns=20_000_000, sampler_ns=10_000_000)
        for batch in training.batches
    ]
    works = [
        MadeBatch(0, work_of(b.position, b.ask_ns / 1e6, cpu_ms=70, blocked_ms=20, loader=0), None, None)
        for b in training.batches
    ]
    production = EpochProduction(0, {m.work.task: m for m in works}, (tuple(works),))
    timeline = build_timeline(training.process(), 0)
    assert timeline is not None
    causes = causes_of(timeline.spans, timeline.process, {(0, 0): production})
    assert sum(causes.values()) == pytest.approx(timeline.wall_s)
    assert causes == pytest.approx(
        {Cause.CPU: 0.7, Cause.REMOTE: 0.2, Cause.SAMPLER: 0.1, Cause.CONTENTION: 0.2, Cause.COMPUTE: 1.8}
    )


def test_overlapping_loaders_are_counted_once() -> None:
    """A wait that lies inside another loader's is billed by the part that its span covers."""
    training = FakeTraining()
    training.begin("outer")
    for _ in range(3):
        before = training.now_ns
        training.begin("inner")
        training.take(0.1, "inner")
        training.now_ns = before
        training.take(0.2, "outer")
        training.spend(0.1)
    training.end("outer")
    timeline = build_timeline(training.process(), 0)
    assert timeline is not None
    causes = causes_of(timeline.spans, timeline.process, {})
    assert sum(causes.values()) == pytest.approx(timeline.wall_s)


def test_the_loops_own_python_is_told_by_samples() -> None:
    process = sampled(("step", True, 6.0), ("step", False, 2.0), ("fetch", False, 50.0))
    parts = split_steps(10.0, 2.0, process)
    assert parts == pytest.approx({Cause.CONTENTION: 2.0, Cause.HOST: 2.0, Cause.COMPUTE: 6.0})


def test_a_handful_of_samples_tells_nothing() -> None:
    parts = split_steps(10.0, 0.0, sampled(("step", False, 0.1)))
    assert parts == pytest.approx({Cause.CONTENTION: 0.0, Cause.HOST: 0.0, Cause.COMPUTE: 10.0})


def test_queued_time_cannot_exceed_the_steps() -> None:
    assert split_steps(1.0, 5.0, sampled()) == {Cause.CONTENTION: 1.0, Cause.HOST: 0.0, Cause.COMPUTE: 0.0}


def test_shares_are_sorted_and_sum_to_one() -> None:
    shares = as_shares({Cause.CPU: 2.0, Cause.COMPUTE: 6.0}, 4.0)
    assert [(s.cause, s.seconds, s.share) for s in shares] == [
        (Cause.COMPUTE, 3.0, 0.75),
        (Cause.CPU, 1.0, 0.25),
    ]
    assert as_shares({}) == ()


def test_steps_that_only_wait_stand_for_a_device_unless_torch_computes_beside() -> None:
    sleep = Sampled("step", "train", "train.py", 1, False, False, 9.0)
    forward = Sampled("step", "forward", "linear.py", 1, True, True, 1.0)
    python = Sampled("step", "log", "train.py", 9, True, False, 1.0)

    def host_s(*found: Sampled) -> float:
        return split_steps(10.0, 0.0, replace(sampled(), sampled=found))[Cause.HOST]

    assert host_s(sleep) == 0.0
    assert host_s(sleep, forward) == pytest.approx(9.0)
    assert host_s(sleep, python) == pytest.approx(10.0)
