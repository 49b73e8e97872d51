"""What one batch takes on average, and which samples stand out."""

from __future__ import annotations

import pytest

from fake_work import MS, work_of
from fakes import FakeTraining
from unstarve.analyze.batch_costs import demand_of, slow_samples
from unstarve.analyze.batch_production import EpochProduction, MadeBatch
from unstarve.analyze.timeline import Timeline, build_timeline
from unstarve.model import Received, Sent, Work


def timeline_of(steps: int = 10, size: int | None = 8) -> Timeline:
    training = FakeTraining()
    training.epoch([(0.1, 0.1)] * steps)
    training.batches = [b._replace(task=b.position, sampler_ns=MS, size=size) for b in training.batches]
    timeline = build_timeline(training.process(), 0)
    assert timeline is not None
    return timeline


def made_by(
    workers: int, works: list[Work], *, handed_over: bool = True
) -> dict[tuple[int, int], EpochProduction]:
    made = [
        MadeBatch(
            w.task % max(workers, 1),
            w,
            Sent(w.task, 0, w.done_ns, w.done_ns, w.done_ns + 2 * MS, MS) if handed_over else None,
            Received(0, 0, w.task, w.done_ns, w.done_ns + 3 * MS, w.done_ns + 7 * MS)
            if handed_over
            else None,
        )
        for w in works
    ]
    crew = tuple(tuple(m for m in made if m.worker == place) for place in range(max(workers, 1)))
    return {(0, 0): EpochProduction(workers, {m.work.task: m for m in made}, crew)}


def test_means_over_the_measured_batches() -> None:
    works = [
        work_of(
            task,
            200 * task,
            cpu_ms=60,
            system_ms=10,
            blocked_ms=30,
            queued_ms=10,
            collate_ms=8,
            collate_system_ms=3,
            storage_bytes=10**6,
            asked_bytes=10**6,
            opens=4,
        )
        for task in range(10)
    ]
    demand = demand_of(timeline_of(), made_by(2, works))
    assert demand is not None
    assert (demand.workers, demand.batches, demand.samples, demand.opens) == (2, 10, 8, 4)
    assert demand.fetch_s == pytest.approx(0.1)
    assert (demand.cpu_s, demand.disk_s, demand.remote_s) == pytest.approx((0.05, 0.04, 0.0))
    assert demand.queued_s == pytest.approx(0.01)
    assert demand.collate_s == pytest.approx(0.005)
    assert demand.handoff_s == pytest.approx(0.003 + 0.002 + 0.003)
    assert demand.pin_s == pytest.approx(0.004)
    assert demand.sampler_s == pytest.approx(0.001)
    assert demand.storage_bytes == 10**6
    assert demand.tail == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("delivered", "indices", "samples"),
    [
        (50, 1, 50),  # a dataset that returns whole batches, one for each index
        (50, 50, 50),  # __getitems__, or a sampler of lists of indices
        (None, 50, 50),  # a batch of a foreign type: the list of indices tells
        (None, 1, None),  # a ready-made batch of a foreign type
    ],
)
def test_samples_are_those_delivered(delivered: int | None, indices: int, samples: int | None) -> None:
    works = [work_of(task, 200 * task, cpu_ms=100, samples=indices) for task in range(10)]
    demand = demand_of(timeline_of(size=delivered), made_by(0, works, handed_over=False))
    assert demand is not None
    assert demand.samples == samples


def test_how_busy_workers_were() -> None:
    back_to_back = [work_of(task, 100 * (task // 2), cpu_ms=100) for task in range(10)]
    half_idle = [work_of(task, 200 * (task // 2), cpu_ms=100) for task in range(10)]
    for works, busy in ((back_to_back, 1.0), (half_idle, 5 / 9)):
        demand = demand_of(timeline_of(), made_by(2, works))
        assert demand is not None
        assert demand.busy_share == pytest.approx(busy)


def test_without_workers_nobody_is_busy_and_nothing_is_handed_over() -> None:
    works = [work_of(task, 200 * task, collate_ms=10, collate_system_ms=5, loader=0) for task in range(10)]
    demand = demand_of(timeline_of(), made_by(0, works, handed_over=False))
    assert demand is not None
    assert demand.busy_share is None
    assert (demand.collate_s, demand.handoff_s) == pytest.approx((0.01, 0.0))


def test_bytes_that_were_not_counted_are_not_zero() -> None:
    works = [
        work_of(task, 200 * task, cpu_ms=1, storage_bytes=None if task == 3 else 5) for task in range(10)
    ]
    demand = demand_of(timeline_of(), made_by(2, works))
    assert demand is not None
    assert demand.storage_bytes is None


def test_nothing_known_of_the_inside_is_no_demand() -> None:
    assert demand_of(timeline_of(), {}) is None


def test_slow_samples_are_named_the_slowest_first_and_once() -> None:
    works = [work_of(task, 100 * task, cpu_ms=1, slow_index=task, slow_ms=1) for task in range(20)]
    works[4] = works[4]._replace(slow_index=404, slow_ns=50 * MS)
    works[7] = works[7]._replace(slow_index=707, slow_ns=90 * MS)
    works[9] = works[9]._replace(slow_index=404, slow_ns=60 * MS)
    found = slow_samples(made_by(2, works))
    assert [(sample.index, sample.ms) for sample in found] == [(707, 90.0), (404, 60.0)]


def test_when_all_samples_are_alike_none_is_slow() -> None:
    works = [
        work_of(task, 100 * task, cpu_ms=1, slow_index=task, slow_ms=1 + task / 100) for task in range(20)
    ]
    assert slow_samples(made_by(2, works)) == ()
    assert slow_samples({}) == ()


def test_batches_without_known_samples_do_not_make_the_others_slow() -> None:
    """Datasets with ``__getitems__`` are asked for whole batches."""
    works = [work_of(task, 100 * task, cpu_ms=1) for task in range(20)]
    works[3] = works[3]._replace(slow_index=3, slow_ns=MS)
    assert slow_samples(made_by(2, works)) == ()
