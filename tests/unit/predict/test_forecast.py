"""Predictions from demands that a test made up, and how sure they are."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fake_forecaster import demands
from unstarve.errors import UsageError
from unstarve.model import Scenario
from unstarve.predict.demand import BatchDemand
from unstarve.predict.forecast import LoaderModel, model_loader, what_if
from unstarve.predict.recorded_run import EpochCosts, RecordedMachine

CPU = BatchDemand(cpu_s=0.08, step_delay_s=0.002)
LATENCY = BatchDemand(blocked_s=0.08, cpu_s=0.0005, take_s=0.0005, step_delay_s=0.01)


def made(work: BatchDemand, workers: int = 1, **more: Any) -> LoaderModel:
    return model_loader(demands(work, workers, **more))


def test_cpu_work_is_predicted_to_fill_the_cores_and_no_more() -> None:
    predict = made(CPU, cores=4)
    found = {count: predict(Scenario(workers=count)).speedup for count in (1, 2, 4, 8, 16)}
    assert found[1] == 1
    assert found[2] == pytest.approx(2, rel=0.06)
    assert found[4] == pytest.approx(4, rel=0.1)
    assert found[16] == pytest.approx(found[8], rel=0.05)
    assert found[8] < 4.2


def test_waiting_is_predicted_to_scale_until_the_step_is_the_limit() -> None:
    predict = made(LATENCY, cores=1)
    found = {count: predict(Scenario(workers=count)) for count in (2, 4, 16, 32)}
    assert found[2].speedup == pytest.approx(2, rel=0.05)
    assert found[4].speedup == pytest.approx(4, rel=0.05)
    assert found[16].speedup == pytest.approx(found[32].speedup, rel=0.02)
    assert found[32].wait_share < 0.1 < found[2].wait_share


def test_the_recorded_setting_is_what_was_recorded() -> None:
    predict = made(LATENCY, workers=2, period_s=0.05, wait_share=0.8)
    forecast = predict(Scenario())
    assert forecast.steps_per_s == pytest.approx(20)
    assert forecast.samples_per_s == pytest.approx(160)
    assert (forecast.speedup, forecast.wait_share) == (1, 0.8)
    assert forecast == predict(Scenario(workers=2, prefetch=2, in_order=True))


def test_an_answer_holds_its_interval_and_is_the_same_twice() -> None:
    for scenario in (Scenario(), Scenario(workers=0), Scenario(workers=8), Scenario(workers=1)):
        first, second = (made(LATENCY, workers=2)(scenario) for _ in range(2))
        assert first == second
        assert first.low < first.steps_per_s < first.high
        assert first.speedup_low < first.speedup < first.speedup_high


def test_what_the_model_cannot_explain_makes_it_less_sure() -> None:
    recorded = demands(CPU, 1, cores=4)
    sure, unsure = (
        model_loader(dataclasses.replace(recorded, period_s=recorded.period_s * factor))(Scenario(workers=2))
        for factor in (1.0, 1.5)
    )
    assert unsure.speedup == sure.speedup
    assert unsure.speedup_high - unsure.speedup_low > 2 * (sure.speedup_high - sure.speedup_low)


def test_handing_over_is_estimated_from_bytes_and_tensors_where_it_was_not_recorded() -> None:
    work = BatchDemand(cpu_s=0.004, step_delay_s=0.004)
    few, many, large = (
        made(work, workers=0, **more)(Scenario(workers=4)) for more in ({}, {"tensors": 60}, {"nbytes": 20e6})
    )
    assert few.speedup > 1.5
    assert many.speedup < 0.6 * few.speedup
    assert large.speedup < few.speedup
    assert many.speedup_high / many.speedup_low > few.speedup_high / few.speedup_low


def test_without_workers_nothing_is_handed_over() -> None:
    """Neither messages nor fresh memory: 8 ms of the kernel's time for it, 2.5 ms of cold caches."""
    heavy = BatchDemand(cpu_s=0.001, collate_s=0.02, send_s=0.002, take_s=0.02, step_delay_s=0.005)
    forecast = made(heavy, nbytes=10e6, memory_s=0.008, collate_memory_s=0.008)(Scenario(workers=0))
    assert forecast.speedup == pytest.approx(0.025 / (0.005 + 0.021 - 0.008 - 0.0025 + 0.00015), rel=0.05)


def test_a_batch_too_large_to_be_kept_costs_fresh_memory_without_workers_too() -> None:
    """Of the kernel's 60 ms for 100 MB of shared memory, private memory takes 29; caches stay cold."""
    heavy = BatchDemand(cpu_s=0.5, collate_s=0.1, step_delay_s=0.005)
    large = made(heavy, cores=1000, nbytes=100e6, memory_s=0.06, collate_memory_s=0.06, pinned=True)
    forecast = large(Scenario(workers=0))
    assert forecast.speedup == pytest.approx(0.6 / (0.605 - 0.06 + 0.029), rel=0.01)


def test_memory_for_the_batch_is_paid_for_once() -> None:
    """Private without workers, shared with them: 20 ms of the kernel's time that were recorded go away."""
    heavy = BatchDemand(cpu_s=0.1, collate_s=0.05, step_delay_s=0.001)
    paid, again = (
        made(heavy, workers=0, collate_memory_s=memory_s)(Scenario(workers=1)) for memory_s in (0.02, 0.0)
    )
    assert paid.speedup / again.speedup == pytest.approx(0.15 / 0.13, rel=0.02)


def test_torchs_threads_in_the_training_process_suffer_from_neighbours() -> None:
    heavy = BatchDemand(cpu_s=0.001, collate_s=0.02, send_s=0.002, take_s=0.02, step_delay_s=0.005)
    quiet, busy = (
        made(heavy, cores=2, nbytes=10e6, foreign=used, period_s=0.03)(Scenario(workers=0))
        for used in (0.0, 1.5)
    )
    assert quiet.speedup_low > busy.speedup_low
    assert busy.speedup < 0.5 * quiet.speedup


def test_a_stage_that_gets_cheaper_is_no_longer_in_the_way() -> None:
    work = BatchDemand(
        collate_s=0.04, cpu_s=0.01, disk_s=0.01, blocked_s=0.02, index_s=0.002, step_delay_s=0.002
    )
    predict = made(work)
    whole_s = 0.08
    for stage, part_s in (("collate", 0.04), ("cpu", 0.01), ("disk", 0.01), ("remote", 0.02)):
        assert predict.speedup(Scenario(left={stage: 0.0})) == pytest.approx(
            whole_s / (whole_s - part_s), rel=0.05
        )
    assert predict.speedup(Scenario(left={"sampler": 0.0})) == pytest.approx(1, rel=0.05)


def test_a_cheaper_handoff_includes_its_shared_memory() -> None:
    work = BatchDemand(collate_s=0.02, take_s=0.001, step_delay_s=0.001)
    without = Scenario(left={"handoff": 0.0})
    assert made(work, collate_memory_s=0.015).speedup(without) == pytest.approx(4, rel=0.05)


def test_batches_that_are_as_fast_as_each_other_hold_nobody_back() -> None:
    quick, late = (
        BatchDemand(blocked_s=0.01, step_delay_s=0.01),
        BatchDemand(blocked_s=0.25, step_delay_s=0.01),
    )
    works = [late if number % 20 == number // 20 * 7 % 20 else quick for number in range(120)]
    predict = model_loader(demands(works, 4))
    even = predict.speedup(Scenario(evened=1.0))
    assert even > 1.2
    assert 1 < predict.speedup(Scenario(evened=0.5)) < even
    assert predict.speedup(Scenario(in_order=False)) > 1.2
    assert predict.speedup(Scenario(prefetch=8)) > 1.2


def test_a_larger_batch_is_counted_by_its_samples() -> None:
    forecast = made(LATENCY, workers=1)(Scenario(batch_size=32))
    assert forecast.steps_per_s == pytest.approx(1 / 0.32, rel=0.05)
    assert forecast.speedup == pytest.approx(1, rel=0.05)
    assert forecast.setting.batch_size == 32


def test_new_workers_in_every_epoch_cost_what_they_were_measured_to_cost() -> None:
    work = BatchDemand(cpu_s=0.02, step_delay_s=0.02)
    epochs = EpochCosts(batches=20, starts=1 / 20, iter_s=0.2, boot_s=0.1, end_s=0.1, between_s=0.0)
    kept = made(work, 2, epochs=epochs).speedup(Scenario(persistent=True))
    lighter = made(work, 2, epochs=epochs).speedup(Scenario(left={"start": 0.0}))
    assert kept == pytest.approx((0.2 + 0.1 + 0.02 + 0.1 + 0.4) / (0.02 + 0.4), rel=0.1)
    assert 1 < lighter < kept
    more = made(work, 2, epochs=epochs).speedup(Scenario(workers=8))
    assert more < 0.7
    long = dataclasses.replace(epochs, batches=2000, starts=1 / 2000)
    assert made(work, 2, epochs=long).speedup(Scenario(persistent=True)) == pytest.approx(1, abs=0.02)


def test_workers_that_share_a_lock_are_predicted_to_stay_as_fast_as_they_are() -> None:
    locked = made(LATENCY, workers=2, waits_together=True)
    assert locked(Scenario(workers=8)).speedup == pytest.approx(1, rel=0.05)
    assert made(LATENCY, workers=2)(Scenario(workers=8)).speedup > 3


def test_a_disk_that_was_shared_already_is_not_shared_twice() -> None:
    """Two workers that read at once; one alone would read twice as fast from a disk that is at its limit."""
    work = BatchDemand(disk_s=0.08, step_delay_s=0.001)
    full = made(work, workers=2, readers=2.0, read_bytes=4e6)
    assert full(Scenario(workers=1)).speedup > 0.75
    assert full(Scenario(workers=8)).speedup < 1.7
    small = made(work, workers=2, readers=2.0, read_bytes=4096)
    assert small(Scenario(workers=8)).speedup > 2.5


def test_neighbours_are_told_from_the_queue() -> None:
    """One worker that took twice as long as alone on two cores: three others want them, too."""
    crowded = made(CPU, cores=2, slowdown=2.0, foreign=None, period_s=0.16)
    assert crowded.demand.competition.threads == pytest.approx(3, abs=0.3)
    assert crowded(Scenario(workers=8)).speedup > crowded(Scenario(workers=2)).speedup
    assert crowded(Scenario(foreign=0.0)).speedup == pytest.approx(2, rel=0.1)
    assert made(CPU, cores=2, foreign=None).demand.competition.threads == 0


def test_neighbours_who_left_enough_for_one_worker_do_not_for_two() -> None:
    quiet, busy = (made(CPU, cores=2, foreign=used) for used in (0.0, 1.0))
    assert busy(Scenario(workers=1)).speedup == 1
    assert quiet(Scenario(workers=2)).speedup == pytest.approx(2, rel=0.06)
    assert busy(Scenario(workers=2)).speedup < 1.5


def test_a_queue_of_ones_own_workers_is_nobody_elses() -> None:
    own = made(CPU, workers=8, cores=2, slowdown=4.0, foreign=0.0)
    assert own.demand.competition.threads == 0


def test_more_cores_help_work_that_stands_in_line_for_them() -> None:
    assert made(CPU, workers=4, cores=1).speedup(Scenario(cores=4)) == pytest.approx(4, rel=0.1)


def test_a_change_that_only_takes_work_away_cannot_slow_training_down() -> None:
    """However badly the model fits the recorded run."""
    epochs = EpochCosts(batches=20, starts=1 / 20, iter_s=0.2, boot_s=0.1, end_s=0.1, between_s=0.0)
    recorded = demands(CPU, 2, cores=4, epochs=epochs)
    predict = model_loader(dataclasses.replace(recorded, period_s=recorded.period_s * 1.6))
    assert predict.misfit > 0.4
    for scenario in (
        Scenario(prefetch=4),
        Scenario(persistent=True),
        Scenario(left={"cpu": 0.9}),
        Scenario(evened=1.0),
        Scenario(in_order=False),
    ):
        forecast = predict(scenario)
        assert forecast.speedup_low >= min(forecast.speedup, 1.0)
    assert predict(Scenario(workers=3)).speedup_low < 1


def test_what_the_model_misses_is_no_more_in_doubt_than_the_change_itself() -> None:
    recorded = demands(CPU, 2, cores=4)
    poor = model_loader(dataclasses.replace(recorded, period_s=recorded.period_s * 1.6))
    small, large = poor(Scenario(left={"cpu": 0.99})), poor(Scenario(left={"cpu": 0.5}))
    assert small.speedup_high < 1.15
    assert large.speedup_high > large.speedup * 1.3


def test_nothing_is_faster_than_training_without_waiting() -> None:
    predict = made(LATENCY, wait_share=0.5)
    assert predict(Scenario(workers=16)).speedup == pytest.approx(2)
    assert predict(Scenario(workers=16)).speedup_high < 2.2
    freed = made(LATENCY, workers=4, wait_share=0.1)(Scenario(left={"cpu": 0.0, "remote": 0.0}))
    assert freed.speedup == pytest.approx(1 / 0.9)
    assert freed.speedup_high > 1.15


def test_workers_hold_up_a_step_that_computes_on_all_cores() -> None:
    """The same work beside a step of one thread and of two, on two cores."""
    work = BatchDemand(cpu_s=0.01, step_s=0.04)
    quiet, busy = (
        made(work, 0, cores=2, machine=RecordedMachine(2.0, 0.0, False, threads, 1.0))(Scenario(workers=2))
        for threads in (1.0, 2.0)
    )
    assert quiet.speedup_low > 1
    assert busy.speedup < 1.05
    assert busy.speedup_low < 0.95
    back = made(work, 2, cores=2, machine=RecordedMachine(2.0, 0.0, False, 2.0, 1.0))(Scenario(workers=0))
    assert back.speedup > 0.9


def test_a_step_of_several_threads_beside_neighbours_is_anybodys_guess() -> None:
    work = BatchDemand(cpu_s=0.01, step_s=0.04)
    alone, crowded = (
        made(work, 1, cores=2, machine=RecordedMachine(2.0, used, False, 2.0, 1.0))(Scenario(workers=2))
        for used in (0.0, 1.5)
    )
    assert crowded.speedup_high / crowded.speedup_low > 1.3 * alone.speedup_high / alone.speedup_low


def test_the_curve_marks_what_was_recorded_what_is_best_and_what_is_enough() -> None:
    result = what_if(made(LATENCY, workers=2), (0, 1, 4, 8, 16))
    assert [one.setting.workers for one in result.curve] == [0, 1, 2, 4, 8, 16]
    assert result.recorded.setting.workers == 2
    assert result.enough.setting.workers == 8
    assert result.enough.speedup >= 0.97 * result.best.speedup
    assert sum(one.best for one in result.curve) == sum(one.enough for one in result.curve) == 1


def test_the_curve_covers_all_combinations_once() -> None:
    result = what_if(made(LATENCY, workers=2), (0, 2), (2, 4), (8, 16))
    settings = [(o.setting.batch_size, o.setting.workers, o.setting.prefetch) for o in result.curve]
    assert settings == [(8, 0, None), (8, 2, 2), (8, 2, 4), (16, 0, None), (16, 2, 2), (16, 2, 4)]
    assert any("grows with its batch" in note for note in result.notes)


def test_what_was_assumed_is_said() -> None:
    notes = what_if(
        made(BatchDemand(cpu_s=0.01, disk_s=0.05), workers=0, foreign=1.5, period_s=0.3), (1,)
    ).notes
    for said in ("no workers", "disk", "1.5 of 4 cores", "poorly", "24 batches"):
        assert any(said in note for note in notes), said
    assert what_if(model_loader(demands([LATENCY] * 60, 2)), (4,)).notes == ()


def test_a_busy_machine_is_named_with_what_a_quiet_one_would_give() -> None:
    """Two of four cores are taken from four workers that could use all of them."""
    quiet, busy = (
        what_if(made(CPU, workers=4, cores=4, foreign=used, slowdown=slow, period_s=took), (4, 8))
        for used, slow, took in ((0.0, 1.0, 0.0215), (2.0, 2.0, 0.043))
    )
    assert (quiet.busy_cores, busy.busy_cores) == (None, 2.0)
    assert all(one.quiet_steps_per_s is None for one in quiet.curve)
    assert busy.recorded.quiet_steps_per_s == pytest.approx(quiet.recorded.steps_per_s, rel=0.15)
    assert all((one.quiet_steps_per_s or 0) >= one.steps_per_s for one in busy.curve)
    assert any("2.0 of 4 cores" in note and "quiet machine" in note for note in busy.notes)


def test_questions_that_make_no_sense_are_turned_down() -> None:
    with pytest.raises(UsageError, match="ask for fewer"):
        what_if(made(LATENCY), range(30), (1, 2, 4))
    with pytest.raises(UsageError, match="no batch_size"):
        what_if(made(LATENCY, config={"batch_size": None}), (1,), (), (8,))
