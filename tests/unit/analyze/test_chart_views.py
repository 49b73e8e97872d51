"""What is drawn is what was recorded: every batch once, every lane in order, nothing invented."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest

from fake_work import MS, work_of
from fakes import FakeTraining, run_of
from unstarve.analyze.chart_views import _histogram, views_of
from unstarve.model import Cause, Crew, Doing, LaneKind, Process, Received, Run, Sent, Stall, Views


def trained(steps: int = 8, wait_s: float = 0.03, step_s: float = 0.01) -> Process:
    training = FakeTraining()
    training.begin()
    for _ in range(steps):
        training.take(wait_s)
        training.spend(step_s)
    training.end()
    return training.process()


def shown(*processes: Process) -> Views:
    views = views_of(run_of(*processes))
    assert views is not None
    return views


def test_a_run_without_batches_has_nothing_to_draw() -> None:
    assert views_of(run_of()) is None


def test_the_main_lane_covers_the_recorded_time_without_a_gap() -> None:
    main = shown(trained()).lanes[0]
    assert main.kind is LaneKind.MAIN
    assert main.spans[0].begin_s == 0
    assert all(a.end_s == pytest.approx(b.begin_s) for a, b in zip(main.spans, main.spans[1:], strict=False))
    assert {span.doing for span in main.spans} == {Doing.START, Doing.WAIT, Doing.STEP, Doing.END}


def test_every_batch_has_its_story() -> None:
    views = shown(trained(steps=8, wait_s=0.03, step_s=0.01))
    assert [story.position for story in views.batches] == list(range(8))
    assert [round(story.got_s - story.ask_s, 6) for story in views.batches] == [0.03] * 8
    assert [story.step_s and round(story.step_s, 6) for story in views.batches] == [0.04] * 7 + [None]
    for story in views.batches:
        assert sum(story.causes.values()) == pytest.approx(story.got_s - story.ask_s)
    steps = [span.batch for span in views.lanes[0].spans if span.doing is Doing.STEP]
    assert steps == list(range(8))


def test_warm_up_ends_where_the_first_counted_batch_was_asked_for() -> None:
    views = shown(trained(steps=8, wait_s=0.03, step_s=0.01))
    assert views.warmup_end_s == pytest.approx(views.batches[5].ask_s)


def with_a_worker(training: Process) -> tuple[Process, Process]:
    begin_ms = training.batches[0].ask_ns / MS
    works = tuple(work_of(task, begin_ms + 40 * task, cpu_ms=20, collate_ms=5) for task in range(8))
    sents = tuple(Sent(w.task, 0, w.done_ns, w.done_ns, w.done_ns + MS, MS) for w in works)
    worker = dataclasses.replace(training, pid=77, worker=True, works=works, sents=sents,
                                 batches=(), epochs=(), loaders=())  # fmt: skip
    receipts = tuple(
        Received(0, 0, w.task, w.done_ns + MS, w.done_ns + 2 * MS, w.done_ns + 3 * MS) for w in works
    )
    batches = tuple(batch._replace(task=batch.position, ready=1) for batch in training.batches)
    main = dataclasses.replace(training, batches=batches, receipts=receipts, crews=(Crew(0, 0, (77,)),))
    return main, worker


def test_a_worker_has_a_lane_and_its_batches_are_those_of_the_steps() -> None:
    views = shown(*with_a_worker(trained()))
    worker = next(lane for lane in views.lanes if lane.kind is LaneKind.WORKER)
    assert worker.name == "worker 0"
    assert [s.doing for s in worker.spans[:3]] == [Doing.FETCH, Doing.COLLATE, Doing.SEND]
    assert [s.batch for s in worker.spans if s.doing is Doing.FETCH] == list(range(8))
    assert {story.worker for story in views.batches} == {0}
    assert views.batches[3].causes[Cause.CPU] > 0
    pin = next(lane for lane in views.lanes if lane.kind is LaneKind.PIN)
    assert [s.batch for s in pin.spans] == list(range(8))


def test_a_device_starves_at_the_end_of_the_wait() -> None:
    training = trained()
    stalls = tuple(
        Stall(b.loader, b.epoch, b.position, 0, b.ask_ns, b.got_ns, 10 * MS) for b in training.batches
    )
    views = shown(dataclasses.replace(training, stalls=stalls))
    device = next(lane for lane in views.lanes if lane.kind is LaneKind.DEVICE)
    assert [s.end_s - s.begin_s for s in device.spans] == [pytest.approx(0.01)] * 8
    assert [s.end_s for s in device.spans] == [pytest.approx(story.got_s) for story in views.batches]


def test_the_histogram_counts_every_measured_wait_once() -> None:
    views = shown(trained(steps=25))
    assert views.wait_ms is not None
    assert sum(views.wait_ms.counts) == 20
    assert views.wait_ms.edges_ms[0] <= 30 <= views.wait_ms.edges_ms[-1]
    assert len(views.wait_ms.edges_ms) == len(views.wait_ms.counts) + 1


def test_a_histogram_has_bins_enough_to_show_a_shape() -> None:
    waits = [10.0 + 0.1 * (number % 20) for number in range(400)]
    found = _histogram(waits)
    assert found is not None
    assert sum(1 for count in found.counts if count) >= 10
    assert sum(found.counts) == 400


def test_a_few_values_far_off_leave_the_others_their_shape() -> None:
    waits = [10.0 + 0.1 * (number % 20) for number in range(400)]
    found = _histogram([0.0, *waits, 3000.0])
    assert found is not None
    assert (found.counts[0], found.counts[-1], sum(found.counts)) == (1, 1, 402)
    assert found.edges_ms[-1] == pytest.approx(3000.0)
    assert sum(1 for count in found.counts if count) >= 12
    assert list(found.edges_ms) == sorted(found.edges_ms)


@pytest.mark.parametrize("waits", [[5.0], [5.0] * 100, [0.0, 0.0], [1.0, 2.0], [0.7, 30.1], [0.3, 0.3, 1e9]])
def test_a_histogram_of_few_or_equal_values_counts_them_all(waits: list[float]) -> None:
    found = _histogram(waits)
    assert found is not None
    assert sum(found.counts) == len(waits)
    assert all(a < b for a, b in pairwise(found.edges_ms))


def test_of_several_ranks_the_one_that_waited_most_is_drawn() -> None:
    slow, quick = trained(wait_s=0.05), trained(wait_s=0.001)
    run: Run = run_of(dataclasses.replace(quick, rank=0), dataclasses.replace(slow, rank=1))
    views = views_of(run)
    assert views is not None
    assert views.rank == 1
