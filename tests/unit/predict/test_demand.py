"""What a recorded run says about the demands of its batches, its epochs and its machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from fake_work import MS, work_of
from fakes import FakeTraining
from unstarve.analyze.batch_production import EpochProduction, MadeBatch, RecordedTraining
from unstarve.analyze.timeline import build_timeline
from unstarve.model import Crew, Loader, Process, Received, Run, Sampled, Scenario, Sent, Stall, Work
from unstarve.predict.demand import LoaderDemand, loader_demand
from unstarve.predict.forecast import model_loader
from unstarve.predict.training_job import TrainingJob

STEP_MS, WAIT_MS = 20, 30
CONFIG = {"num_workers": 1, "batch_size": 8}


def usage(at_s: float, process_s: float, machine_s: float) -> dict[str, Any]:
    return {
        "at_ns": round(at_s * 1e9),
        "process_cpu_s": process_s,
        "machine_cpu_s": machine_s,
        "machine_cores": 2,
    }


SHARED = {"cores": 2, "usage_before": usage(1, 5, 100), "usage": usage(3, 6, 103)}
"""Of 3 busy seconds in 2, this process had 1."""


def recorded(
    steps: int = 40,
    *,
    workers: int = 1,
    epochs: int = 1,
    config: dict[str, Any] | None = None,
    process: dict[str, Any] | None = None,
    others: tuple[Process, ...] = (),
    take_ms: float = 2.0,
    wait_ms: float = WAIT_MS,
    slow_steps: Mapping[int, float] | None = None,
    cut: bool = False,
    first_ms: float = 0.0,
    batch: Mapping[str, Any] | None = None,
    **work: Any,
) -> LoaderDemand | str:
    """A training that waits and steps, whose every batch cost `work`; receiving one took `take_ms`.

    `slow_steps` take so many milliseconds instead. If it is `cut`, the last epoch has no end. The first batch
    of every epoch took `first_ms` more of CPU time.
    """
    training = FakeTraining()
    took_ms = dict.fromkeys(range(steps), STEP_MS) | dict(slow_steps or {})
    for epoch in range(epochs):
        of_epoch = range(epoch * (steps // epochs), (epoch + 1) * (steps // epochs))
        training.epoch([(wait_ms / 1e3, took_ms[number] / 1e3) for number in of_epoch], start_s=0.1)
        training.spend(0.05)
    if cut:
        training.epochs[-1] = dataclasses.replace(training.epochs[-1], last_ask_ns=None, end_ns=None)
    training.batches = [
        one._replace(
            **{
                "task": one.position,
                "wait_cpu_ns": MS,
                "wait_queued_ns": 0,
                "step_cpu_ns": 5 * MS,
                "step_queued_ns": 4 * MS,
                "nbytes": 1000,
            }
            | dict(batch or {})
        )
        for one in training.batches
    ]
    whole = dataclasses.replace(
        training.process(),
        loaders=(Loader(0, "train", "train.py:1", "DataLoader", config or CONFIG, tensors=3),),
        **({"system": {"cores": 2}} | (process or {})),
    )
    timeline = build_timeline(whole, 5)
    assert timeline is not None
    made = {
        (0, epoch.epoch): production(training, epoch.epoch, workers, take_ms, first_ms, **work)
        for epoch in whole.epochs
    }
    run = Run("fake.unstarve", ("train.py",), "run", 0.0, (whole, *others), 0, live=False, lost=())
    return loader_demand(run, TrainingJob(RecordedTraining(timeline, made)))


def production(
    training: FakeTraining, epoch: int, workers: int, take_ms: float, first_ms: float, **costs: Any
) -> EpochProduction:
    makers = []
    for batch in training.batches:
        if batch.epoch == epoch:
            arrived_ns = batch.got_ns - round((take_ms + 1) * MS)
            more_ms = 0.0 if batch.position else first_ms
            cpu_ms = costs.get("cpu_ms", 0.0) + more_ms
            work = work_of(batch.position, arrived_ns / MS - 1000, **costs | {"cpu_ms": cpu_ms})
            makers.append(maker(work, arrived_ns, take_ms) if workers else MadeBatch(0, work, None, None))
    return EpochProduction(workers, {m.work.task: m for m in makers}, (tuple(makers),))


def maker(work: Work, arrived_ns: int, take_ms: float) -> MadeBatch:
    taken_ns = arrived_ns + round(take_ms * MS)
    sent = Sent(work.task, 0, work.done_ns, work.done_ns + MS, work.done_ns + 3 * MS, MS)
    return MadeBatch(0, work, sent, Received(0, 0, work.task, arrived_ns, taken_ns, taken_ns))


def known(found: LoaderDemand | str) -> LoaderDemand:
    assert isinstance(found, LoaderDemand), found
    return found


def test_what_stands_in_line_is_not_demand() -> None:
    """Of our own workers, that is: three of them on two cores."""
    spent = {"cpu_ms": 12, "queued_ms": 12, "blocked_ms": 7}
    collated = {"collate_ms": 3, "collate_queued_ms": 8, "collate_system_ms": 1}
    demands = known(recorded(process={"crews": (Crew(0, 0, (1, 2, 3)),)}, **spent, **collated))
    work = demands.batches[0]
    assert (work.cpu_s, work.collate_s, work.blocked_s) == pytest.approx((0.012, 0.003, 0.007))
    assert (work.step_s, work.step_delay_s) == pytest.approx((0.005, 0.011))
    assert demands.machine.slowdown == pytest.approx(1 + (12 + 8 + 4) / (12 + 3 + 5))
    assert demands.collate_memory_s == pytest.approx(0.001)


def test_short_work_that_others_let_wait_is_late_and_long_work_is_slow() -> None:
    """The same milliseconds in line, before work of 0.1 ms or of 50 ms."""
    others = {"process": {"system": SHARED}}
    short, long = (known(recorded(cpu_ms=cpu_ms, queued_ms=10, **others)) for cpu_ms in (0.1, 50))
    assert short.batches[0].late_s == pytest.approx(0.010, rel=0.2)
    assert long.batches[0].late_s < 0.0003
    assert long.machine.slowdown > 1.15
    alone = {"process": {"system": SHARED | {"usage": usage(3, 6, 101.2)}}}
    assert known(recorded(cpu_ms=0.1, queued_ms=10, **alone)).batches[0].late_s < 0.003


def test_bytes_that_were_not_in_memory_make_waiting_the_disks() -> None:
    read = {"asked_bytes": 10**6, "storage_bytes": 10**6}
    work = known(recorded(cpu_ms=4, blocked_ms=20, **read)).batches[0]
    assert (work.disk_s, work.blocked_s) == pytest.approx((0.02, 0.0))
    elsewhere = known(recorded(cpu_ms=4, blocked_ms=20)).batches[0]
    assert (elsewhere.disk_s, elsewhere.blocked_s) == pytest.approx((0.0, 0.02))


def test_the_handoff_is_what_it_was_measured_to_be() -> None:
    demands = known(recorded(cpu_ms=10, process={"receipts": ()}))
    work = demands.batches[0]
    slowdown = demands.machine.slowdown
    assert (work.send_s, work.send_delay_s) == pytest.approx((0.001, 0.003 / slowdown - 0.001))
    assert work.take_s == pytest.approx(0.001)
    assert work.take_delay_s >= 0.002 / slowdown - 0.001
    assert (demands.nbytes, demands.tensors, demands.samples) == (1000, 3, 8)


def test_without_workers_only_the_batch_and_the_step_are_demanded() -> None:
    work = known(recorded(workers=0, config=CONFIG | {"num_workers": 0}, cpu_ms=20, loader=0)).batches[0]
    assert (work.send_s, work.take_delay_s, work.busy_delay_s) == (0, 0, 0)
    assert work.cpu_s == pytest.approx(0.02)
    assert work.take_s > 0


def test_a_device_that_computes_during_a_wait_is_ahead_of_the_loop() -> None:
    stalls = tuple(Stall(0, 0, position, 0, 0, 0, 10 * MS) for position in range(40))
    alone, ahead = known(recorded(cpu_ms=4)), known(recorded(cpu_ms=4, process={"stalls": stalls}))
    assert alone.batches[0].ahead_s == 0
    assert ahead.batches[0].ahead_s == pytest.approx((WAIT_MS - 10) / 1e3)
    assert ahead.wait_share == pytest.approx(alone.wait_share * 10 / WAIT_MS)


def test_steps_that_an_accelerator_holds_up_are_its_time_and_not_the_loops() -> None:
    """It was busy in every wait, so the 11 ms off the CPU in a step were for earlier ones; or four waits in
    which it came to rest show that it needs 1 ms more after a step: then the 11 ms were the step's own."""
    never = tuple(Stall(0, 0, position, 0, 0, 0, 0) for position in range(40))
    some = tuple(one._replace(stall_ns=MS // 2 if one.position % 10 == 9 else 0) for one in never)
    held, own = (
        known(recorded(cpu_ms=4, wait_ms=1.5, take_ms=0.2, process={"stalls": stalls}))
        for stalls in (never, some)
    )
    assert held.batches[0].step_delay_s == pytest.approx(0, abs=0.0005)
    assert held.batches[0].ahead_s == pytest.approx(0.0015 + 0.011)
    assert own.batches[0].step_delay_s == pytest.approx(0.011, abs=0.0005)
    assert held.batches[0].device_s == pytest.approx(own.batches[0].device_s)


def test_epochs_are_told_where_the_run_began_one() -> None:
    assert known(recorded(cpu_ms=4)).epochs is None
    epochs = known(recorded(80, epochs=4, cpu_ms=4)).epochs
    assert epochs is not None
    assert (epochs.batches, epochs.starts) == (20, 3 / 75)
    assert epochs.iter_s == pytest.approx(0.1)
    assert epochs.between_s == pytest.approx(0.05, rel=0.1)


def test_what_a_new_workers_first_batch_costs_more_is_its_start() -> None:
    """Workers that are kept have no start."""
    plain, slow = (known(recorded(80, epochs=8, cpu_ms=40, first_ms=ms)) for ms in (0, 25))
    assert plain.epochs is not None
    assert slow.epochs is not None
    assert slow.epochs.boot_s - plain.epochs.boot_s == pytest.approx(0.025, rel=0.1)
    assert {round(one.cpu_s, 4) for one in slow.batches} == {0.04}
    kept = known(recorded(80, epochs=8, cpu_ms=40, first_ms=25, config=CONFIG | {"persistent_workers": True}))
    assert {round(one.cpu_s, 4) for one in kept.batches} == {0.04, 0.065}


def test_who_else_used_the_cores_is_told_from_what_all_used() -> None:
    """Of 3 busy seconds in 2, the training process had 1 and its worker 1."""
    worker = dataclasses.replace(
        FakeTraining().process(),
        worker=True,
        pid=101,
        start_ns=10**9,
        system={"usage_before": usage(2, 0.5, 0), "usage": usage(3, 1.0, 0)},
    )
    machine = known(recorded(cpu_ms=4, process={"system": SHARED}, others=(worker,))).machine
    assert machine.foreign == pytest.approx(0.5)
    elsewhere = known(recorded(cpu_ms=4, process={"system": SHARED | {"cores": 1}})).machine
    assert elsewhere.foreign is None
    assert known(recorded(cpu_ms=4)).machine.foreign is None


def test_a_step_on_several_threads_keeps_several_cores_busy() -> None:
    """1.2 CPU seconds in 2: with 1 ms in each wait, steps of 16 ms out of 50 use nearly two cores."""
    system = SHARED | {"usage": usage(3, 6.2, 103)}
    machine = known(recorded(cpu_ms=4, process={"system": system})).machine
    assert machine.step_threads == pytest.approx((0.6 * 50 - 1) / 16, rel=0.05)
    assert known(recorded(cpu_ms=4)).machine.step_threads == 1


def test_threads_that_help_with_samples_are_not_taken_for_threads_of_the_step() -> None:
    """Without workers, torch's threads spin between the samples that they help with: 20 CPU seconds in 2."""
    alone = {"workers": 0, "config": CONFIG | {"num_workers": 0}, "cpu_ms": 20, "loader": 0}
    system = SHARED | {"cores": 16, "usage": usage(3, 25, 130)}
    on_gpu = known(recorded(**alone, process={"system": system, "device": "cuda"})).machine
    assert on_gpu.step_threads <= 2
    on_cpu = known(recorded(**alone, process={"system": system, "device": "cpu"})).machine
    assert on_cpu.step_threads == 16


def test_steps_that_compile_or_search_are_left_out_and_pauses_with_a_rhythm_are_not() -> None:
    """The 7th and the 12th step take 30 s, or every 15th takes 300 ms; 0.1 s of a pause is one step's."""
    compiled = known(recorded(60, cpu_ms=4, slow_steps={6: 30_000, 11: 30_000}))
    plain, saved = (
        known(recorded(60, cpu_ms=4, slow_steps=slow)) for slow in ({}, dict.fromkeys(range(14, 60, 15), 300))
    )
    assert compiled.period_s == pytest.approx(plain.period_s)
    assert max(one.device_s for one in compiled.batches) < 0.03
    assert compiled.wait_share == pytest.approx(plain.wait_share)
    assert sum(one.device_s > 0.2 for one in saved.batches) >= 2
    assert saved.period_s > 1.2 * plain.period_s


@pytest.mark.parametrize("helped_ms", [0.0, 600.0])
def test_images_for_an_accelerator_on_sixteen_cores_from_a_run_without_workers(helped_ms: float) -> None:
    """4.4 ms of CPU for each of 256 samples, pinned, epochs of 25 steps with new workers each; torch's
    threads spin beside it. 764-839 images/s were measured with 4 workers and 1,644 with 16; 225 without."""
    run = recorded(
        100, epochs=4, workers=0, config={"num_workers": 0, "batch_size": 256, "pin_memory": True},
        wait_ms=1120, cpu_ms=1060 - helped_ms, blocked_ms=helped_ms, helped_ms=15 * helped_ms, collate_ms=50,
        loader=0, batch={"size": 256, "nbytes": 154_000_000},
        process={
            "device": "cuda",
            "system": {"cores": 16, "usage_before": usage(1, 5, 100) | {"machine_cores": 16},
                       "usage": usage(81, 1205, 1304) | {"machine_cores": 16}},
        },
    )  # fmt: skip
    model = model_loader(known(run))
    assert model.demand.machine.step_threads <= 2
    now, four, sixteen = (model(Scenario(workers=count)) for count in (0, 4, 16))
    assert now.samples_per_s == pytest.approx(225, rel=0.05)
    assert four.low * 256 < 764 < 839 < four.high * 256
    assert sixteen.low * 256 < 1644 < sixteen.high * 256


def test_a_run_that_was_cut_off_has_as_many_steps_as_waits() -> None:
    whole, cut = known(recorded(30, cpu_ms=4)), known(recorded(30, cpu_ms=4, cut=True))
    assert whole.period_s == pytest.approx((STEP_MS + WAIT_MS) / 1e3)
    assert cut.period_s == pytest.approx(whole.period_s)


def test_the_steps_of_warm_up_are_told_if_measuring_began_inside_an_epoch() -> None:
    slow = known(recorded(60, epochs=2, cpu_ms=4, slow_steps={1: 700})).warm_up
    assert slow is not None
    assert slow.steps_s == pytest.approx([0.02, 0.7, 0.02, 0.02, 0.02])
    assert (slow.batches, slow.share) == (25, 25 / 55)
    assert known(recorded(80, epochs=16, cpu_ms=4)).warm_up is None
    assert known(recorded(workers=0, config=CONFIG | {"num_workers": 0}, cpu_ms=4, loader=0)).warm_up is None


def test_blocked_stacks_in_locks_mean_that_workers_wait_for_each_other() -> None:
    def seen_in(file: str) -> bool:
        sampled = (Sampled("fetch", "acquire", file, 1, False, False, 3.0),)
        return known(recorded(cpu_ms=1, blocked_ms=9, process={"sampled": sampled})).waits_together

    assert seen_in("/usr/lib/python3.12/multiprocessing/synchronize.py")
    assert not seen_in("/home/me/data.py")


def test_a_run_that_cannot_be_modelled_says_why() -> None:
    assert "is not a torch DataLoader" in str(recorded(cpu_ms=4, config={"batch_size": 8}))
    assert "let it run longer" in str(recorded(15, cpu_ms=4))


def test_of_a_long_run_stretches_are_taken_from_its_whole_length() -> None:
    assert len(known(recorded(400, cpu_ms=4)).batches) == 160
