"""From the few steps whose copies were timed to what copies cost the training."""

from __future__ import annotations

import dataclasses

import pytest

from fake_gpu import GpuTraining
from fakes import run_of
from unstarve.analyze.diagnose import analyze_run
from unstarve.model import Cause, Diagnosis, State, StepCopies

MB = 10**6


def copying(
    copy_s: float,
    *,
    stall_s: float = 0.0,
    every: int = 3,
    beside: bool = False,
    device: int = 0,
    pinned: bool = False,
    utilization: float | None = None,
) -> Diagnosis:
    """200 steps of 100 ms, of which the device copies for `copy_s` and starves for `stall_s`."""
    made, copies = GpuTraining(), []
    made.begin()
    for number in range(200):
        made.step(stall_s, stall_s, 0.1 - stall_s)
        batch = made.batches[-1]
        if number % every == 0:
            ns, amount = round(copy_s * 1e9), round(copy_s * 20e9)
            copies.append(
                StepCopies(0, 0, number, batch.got_ns, made.now_ns, device, 1 if ns else 0, amount, ns, ns,
                           pinned=pinned, non_blocking=pinned, beside=beside)
            )  # fmt: skip
    if utilization is not None:
        made.read(utilization)
    return analyze_run(run_of(dataclasses.replace(made.process(), copies=tuple(copies))))


def shares(d: Diagnosis) -> dict[Cause, float]:
    return {one.cause: one.share for one in d.budget}


def test_copies_on_trainings_stream_are_taken_out_of_computing() -> None:
    d = copying(0.03)
    assert shares(d) == {
        Cause.COPY: pytest.approx(0.3, abs=0.01),
        Cause.COMPUTE: pytest.approx(0.7, abs=0.01),
    }
    assert sum(one.seconds for one in d.budget) + sum(o.seconds for o in d.outside) == pytest.approx(d.wall_s)


def test_a_training_that_copies_more_than_it_waits_is_copy_bound() -> None:
    d = copying(0.03, stall_s=0.01)
    assert (d.verdict.state, d.verdict.cause) == (State.STARVED, Cause.COPY)
    assert "copies from the host keep the GPU waiting 30% of the time" in d.verdict.headline
    assert any("66 steps" in line or "65 steps" in line for line in d.verdict.evidence), d.verdict.evidence
    assert "from pageable memory in 30.0 ms" in " ".join(d.verdict.evidence)


def test_the_questions_name_copies_where_they_matter() -> None:
    assert "Are copies slow?     yes: the GPU waits for them 30% of the time" in copying(0.03).walk
    assert not any("copies" in line for line in copying(0.001).walk)


def test_stall_and_headroom_remain_those_of_loading() -> None:
    d = copying(0.03, stall_s=0.01)
    assert d.stall_share == pytest.approx(0.1, abs=0.01)
    assert d.headroom is not None
    assert d.headroom.speedup == pytest.approx(1.11, abs=0.02)


def test_a_training_that_waits_more_than_it_copies_is_told_why_it_waits() -> None:
    d = copying(0.01, stall_s=0.06)
    assert d.verdict.state is State.STARVED
    assert d.verdict.cause is not Cause.COPY
    assert "to GPU 0" not in d.verdict.headline
    assert any("received" in line for line in d.verdict.evidence)


def test_copies_on_another_stream_cost_nothing_but_are_shown() -> None:
    d = copying(0.05, beside=True)
    assert Cause.COPY not in shares(d)
    assert d.verdict.state is State.FED
    assert d.copies is not None
    assert [(kind.memory, kind.overlapped, kind.bytes) for kind in d.copies.kinds] == [
        ("pageable", True, 65 * 1000 * MB)
    ]


def test_a_device_that_copies_is_not_idle_because_the_host_is_late() -> None:
    d = copying(0.03, utilization=0.6)  # the driver counts kernels alone
    assert d.gpu is not None
    assert d.gpu.host_late_share == pytest.approx(0.1, abs=0.01)
    assert shares(d)[Cause.HOST] == pytest.approx(0.1, abs=0.01)
    assert shares(d)[Cause.COPY] == pytest.approx(0.3, abs=0.01)


def test_steps_without_copies_count() -> None:
    d = copying(0.0)
    assert d.copies is not None
    assert (d.copies.share, d.copies.kinds) == (0.0, ())


def test_too_few_timed_steps_say_nothing() -> None:
    assert copying(0.03, every=80).copies is None


@pytest.mark.parametrize(("received", "is_told"), [(3e9, True), (2e8, False)])
def test_where_much_is_received_and_nobody_timed_the_copies_the_option_is_named(
    received: float, is_told: bool
) -> None:
    made = GpuTraining()
    made.begin()
    for _ in range(100):
        made.step(0.0, 0.0, 0.1)
        made.say(received_bytes_per_s=received)
    told = [line for line in analyze_run(run_of(made.process())).verdict.evidence if "--copies" in line]
    hint = "the GPU receives 3.0 GB/s; `unstarve run --copies` measures what its copies cost"
    assert told == [hint] * is_told


def test_a_step_that_stands_for_many_weighs_more() -> None:
    """Early steps are timed more often: here they copy, and the later ones do not."""
    made, copies = GpuTraining(), []
    made.begin()
    for number in range(200):
        made.step(0.0, 0.0, 0.1)
        if number < 100 or number % 10 == 0:
            ns = 50_000_000 if number < 100 else 0
            begin_ns = made.batches[-1].got_ns
            copies.append(
                StepCopies(0, 0, number, begin_ns, made.now_ns, 0, 1, MB, ns, ns,
                           pinned=False, non_blocking=False, beside=False)
            )  # fmt: skip
    d = analyze_run(run_of(dataclasses.replace(made.process(), copies=tuple(copies))))
    assert d.copies is not None
    assert d.copies.share == pytest.approx(0.25, abs=0.03)
