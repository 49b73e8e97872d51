"""The model of the loader, where the right answer is known in closed form."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from unstarve.predict.demand import BatchDemand, Competition
from unstarve.predict.simulate import LoaderSetup, SimulatedRun, WorkerStart, simulate

MANY = 1e6
"""Cores that nobody has to share."""


def loader(
    workers: int,
    cores: float = MANY,
    *,
    prefetch: int = 2,
    in_order: bool = True,
    pinned: bool = False,
    foreign: float = 0.0,
    grouped: bool = False,
    **more: float,
) -> LoaderSetup:
    return LoaderSetup(workers, prefetch, in_order, pinned, cores, Competition(foreign, 0.0, grouped), **more)


def period(works: Sequence[BatchDemand] | BatchDemand, setup: LoaderSetup, count: int = 192) -> float:
    """Seconds per batch once everything runs: over as many batches for each worker, who may work in step."""
    run = simulate([works] if isinstance(works, BatchDemand) else works, count + 1, setup)
    return (run.got_s[-1] - run.got_s[count // 2]) / (count - count // 2)


def waits(run: SimulatedRun) -> list[float]:
    return [got - ask for ask, got in zip(run.ask_s, run.got_s, strict=True)]


@pytest.mark.parametrize("workers", [1, 2, 4, 8, 16])
def test_cpu_work_scales_up_to_the_cores_and_no_further(workers: int) -> None:
    work = BatchDemand(cpu_s=0.08, step_delay_s=0.001)
    assert period(work, loader(workers, cores=4)) == pytest.approx(0.08 / min(workers, 4), rel=0.02)


@pytest.mark.parametrize("workers", [1, 2, 4, 8, 16])
def test_waiting_scales_past_the_cores_until_the_step_is_the_limit(workers: int) -> None:
    work = BatchDemand(blocked_s=0.08, step_delay_s=0.01)
    assert period(work, loader(workers, cores=1)) == pytest.approx(max(0.08 / workers, 0.01), rel=0.02)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_batch_that_waits_and_computes_is_bound_by_the_slower_of_both(workers: int) -> None:
    work = BatchDemand(blocked_s=0.06, cpu_s=0.02, step_delay_s=0.001)
    bound = max(0.08 / workers, 0.02)
    assert bound * 0.99 < period(work, loader(workers, cores=1)) < bound * 1.05


def test_the_step_takes_its_share_of_the_cores() -> None:
    """Two workers and a computing step on two cores: every batch costs 60 ms of CPU in all."""
    work = BatchDemand(cpu_s=0.05, step_s=0.01)
    assert period(work, loader(2, cores=2)) == pytest.approx(0.06 / 2, rel=0.03)
    assert period(work, loader(2, cores=2, step_threads=4)) > 1.1 * period(work, loader(2, cores=2))


def test_other_peoples_work_counts_like_ones_own() -> None:
    """Two workers beside two foreign processes on two cores get half of them."""
    work = BatchDemand(cpu_s=0.05, step_delay_s=0.001)
    alone, crowded = (period(work, loader(2, cores=2, foreign=foreign)) for foreign in (0.0, 2.0))
    assert crowded == pytest.approx(2 * alone, rel=0.03)


def test_where_groups_share_the_cores_more_workers_get_no_more_of_them() -> None:
    """Beside one other group: half of two cores, for two workers as for eight; one alone gets 2/3 of one."""
    work = BatchDemand(cpu_s=0.06, step_delay_s=0.001)
    for workers, cores_worth in ((1, 2 / 3), (2, 1), (8, 1)):
        found = period(work, loader(workers, cores=2, foreign=1.0, grouped=True))
        assert found == pytest.approx(0.06 / cores_worth, rel=0.03)


def test_cores_that_others_leave_free_are_ours() -> None:
    crowd = Competition(threads=1.0, spare_cores=1.0)
    assert [crowd.speed(users, 2.0) for users in (1, 2, 4)] == pytest.approx([1, 2 / 3, 2 / 5])
    assert Competition(threads=9.0, spare_cores=1.0).speed(2, 2.0) == pytest.approx(0.5)


def test_a_quota_of_part_of_a_core_slows_all_cpu_work_down() -> None:
    work = BatchDemand(cpu_s=0.03, step_delay_s=0.001)
    assert period(work, loader(2, cores=0.25)) == pytest.approx(0.03 / 0.25, rel=0.02)


def test_without_workers_making_and_step_take_turns() -> None:
    work = BatchDemand(cpu_s=0.03, collate_s=0.01, blocked_s=0.02, disk_s=0.005, index_s=0.001, step_s=0.01)
    assert period(work, loader(0, cores=1)) == pytest.approx(0.076)
    assert period(work, loader(0, cores=1, foreign=1.0)) == pytest.approx(2 * 0.051 + 0.025)
    run = simulate([work], 10, loader(0, cores=8))
    assert waits(run) == pytest.approx([0.066] * 10)


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_taking_batches_is_work_of_the_training_thread_and_does_not_scale(workers: int) -> None:
    work = BatchDemand(cpu_s=0.001, take_s=0.012, take_delay_s=0.003, step_delay_s=0.005)
    assert period(work, loader(workers)) == pytest.approx(0.02, rel=0.01)


def test_pinning_runs_beside_the_step_until_it_is_the_slower_of_both() -> None:
    def pinned(pin_s: float) -> float:
        work = BatchDemand(cpu_s=0.001, take_s=0.002, pin_s=pin_s, step_delay_s=0.01)
        return period(work, loader(4, pinned=True))

    assert pinned(0.005) == pytest.approx(0.01, rel=0.02)
    assert pinned(0.02) == pytest.approx(0.022, rel=0.02)


def test_a_disk_gives_its_readers_what_it_can_in_all() -> None:
    work = BatchDemand(disk_s=0.04, step_delay_s=0.001)
    for power, best in ((1.0, 0.01), (0.5, 0.02), (0.0, 0.04)):
        assert period(work, loader(4, disk_power=power)) == pytest.approx(best, rel=0.02)
    assert period(work, loader(8, disk_power=0.5, disk_depth=4)) == pytest.approx(0.02, rel=0.02)


def test_workers_that_wait_for_each_other_gain_nothing_beyond_their_number() -> None:
    work = BatchDemand(blocked_s=0.06, step_delay_s=0.001)
    locked = {"remote_limit": 2, "remote_power": 0.0}
    assert period(work, loader(2, **locked)) == pytest.approx(0.03, rel=0.02)
    assert period(work, loader(8, **locked)) == pytest.approx(0.03, rel=0.02)


def uneven(count: int = 120, late_s: float = 0.2, mean_s: float = 0.02) -> list[BatchDemand]:
    """One batch in twenty is late; on average they take `mean_s`."""
    quick_s = (mean_s - late_s / 20) / 0.95
    order = random.Random(3)
    works = [BatchDemand(blocked_s=quick_s, step_delay_s=0.01) for _ in range(count)]
    for block in range(0, count, 20):
        works[block + order.randrange(20)] = BatchDemand(blocked_s=late_s, step_delay_s=0.01)
    return works


def test_a_late_batch_holds_back_others_in_order_and_not_in_any_order() -> None:
    held, free = (period(uneven(), loader(4, in_order=in_order)) for in_order in (True, False))
    assert free == pytest.approx(0.01, rel=0.1)
    assert held > 1.2 * free


def test_batches_in_stock_smooth_late_ones() -> None:
    depths = [period(uneven(), loader(4, prefetch=depth)) for depth in (1, 2, 4, 8)]
    assert depths == sorted(depths, reverse=True)
    assert depths[0] > 1.3 * depths[-1]
    assert depths[-1] == pytest.approx(0.01, rel=0.1)


def test_every_batch_is_delivered_once_and_in_order() -> None:
    run = simulate(uneven(), 100, loader(3, cores=1))
    assert len(run.ask_s) == len(run.got_s) == 100
    assert all(ask <= got for ask, got in zip(run.ask_s, run.got_s, strict=True))
    assert run.got_s == sorted(run.got_s)


def test_a_worker_that_computes_answers_late_but_no_later_than_it_is_done() -> None:
    """Receiving from a busy worker takes 5 ms more; one whose batch is done in 2 ms answers then."""
    patient = BatchDemand(cpu_s=0.1, busy_delay_s=0.005, take_s=0.001)
    run = simulate([patient], 12, loader(1))
    assert waits(run)[5] == pytest.approx(0.1, rel=0.1)
    short = BatchDemand(cpu_s=0.002, busy_delay_s=0.005, take_s=0.001, step_delay_s=0.02)
    assert max(waits(simulate([short], 12, loader(1)))[1:]) < 0.004


def test_an_epoch_begins_with_making_the_workers_and_persistent_ones_are_there() -> None:
    work = BatchDemand(cpu_s=0.01, step_delay_s=0.01)
    fresh = simulate([work], 5, loader(4), WorkerStart(worker_s=0.02, boot_s=0.05))
    kept = simulate([work], 5, loader(4), WorkerStart(worker_s=0.0, boot_s=0.0))
    assert fresh.ask_s[0] == pytest.approx(4 * 0.02)
    assert fresh.got_s[0] - kept.got_s[0] > 0.05 + 0.02
    assert kept.ask_s[0] == 0


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_a_loop_ahead_of_its_accelerator_makes_or_takes_batches_meanwhile(workers: int) -> None:
    """6 ms to make a batch, 10 ms for the accelerator to work on it: it is never idle, whoever makes them."""
    work = BatchDemand(cpu_s=0.006, step_s=0.001, ahead_s=0.009)
    assert period(work, loader(workers)) == pytest.approx(0.01, rel=0.02)
    run = simulate([work], 60, loader(workers))
    assert max(run.lost_s[3:]) < 0.0005
    slow = BatchDemand(cpu_s=0.03, step_s=0.001, ahead_s=0.009)
    starved = simulate([slow], 60, loader(min(workers, 1)))
    assert sum(starved.lost_s[3:]) / 57 == pytest.approx(0.02, rel=0.15)


def test_slow_indices_are_paid_by_the_training_thread() -> None:
    work = BatchDemand(cpu_s=0.001, index_s=0.02, step_delay_s=0.005)
    assert period(work, loader(4)) == pytest.approx(0.025, rel=0.02)
    assert simulate([work], 3, loader(4)).ask_s[0] == pytest.approx(8 * 0.02)


def test_how_crowded_it_was_is_told() -> None:
    work = BatchDemand(cpu_s=0.05, step_delay_s=0.001)
    assert simulate([work], 60, loader(1, cores=2)).slowdown == pytest.approx(1, rel=0.02)
    assert simulate([work], 60, loader(8, cores=2)).slowdown == pytest.approx(4, rel=0.1)
    assert simulate([work], 60, loader(0, cores=1, foreign=2.0)).slowdown == pytest.approx(3)
