"""What the training thread did when."""

from __future__ import annotations

from itertools import pairwise

import pytest

from fakes import FakeTraining
from unstarve.analyze.stats import number_of
from unstarve.analyze.timeline import Timeline, build_timeline
from unstarve.model import Doing
from unstarve.model.thinned import Thinned


def seconds(timeline: Timeline, doing: Doing) -> float:
    return sum(span.seconds for span in timeline.spans if span.doing is doing)


def timeline_of(training: FakeTraining, warmup_steps: int = 0) -> Timeline:
    timeline = build_timeline(training.process(), warmup_steps)
    assert timeline is not None
    return timeline


def test_every_moment_belongs_to_exactly_one_span() -> None:
    training = FakeTraining()
    training.epoch([(0.1, 0.2)] * 5, start_s=0.5)
    training.spend(0.3)
    training.epoch([(0.1, 0.2)] * 5, start_s=0.5)
    timeline = timeline_of(training)
    assert all(a.end_ns == b.begin_ns for a, b in pairwise(timeline.spans))
    assert timeline.wall_s == pytest.approx(2 * (0.5 + 5 * 0.3) + 0.3)
    assert seconds(timeline, Doing.START) == pytest.approx(2 * (0.5 + 0.1))
    assert seconds(timeline, Doing.WAIT) == pytest.approx(2 * 4 * 0.1)
    assert seconds(timeline, Doing.STEP) == pytest.approx(2 * 5 * 0.2)
    assert seconds(timeline, Doing.BETWEEN) == pytest.approx(0.3)


def test_loaders_iterated_side_by_side_make_one_step_that_waits_for_both() -> None:
    training = FakeTraining()
    training.begin("images")
    training.begin("texts")
    for _ in range(10):
        training.take(0.1, "images")
        training.take(0.3, "texts")
        training.spend(0.1)
    training.end("images")
    timeline = timeline_of(training, warmup_steps=1)
    assert timeline.main == training.number("images")
    assert len(timeline.measured_batches) == 9
    assert [step.wait_s for step in timeline.steps[:-1]] == pytest.approx([0.4] * 8)


def test_validation_in_the_middle_of_an_epoch_does_not_become_the_main_loader() -> None:
    training = FakeTraining()
    training.begin("train")
    for step in range(10):
        training.take(0.01, "train")
        training.spend(0.1)
        if step % 5 == 4:
            training.epoch([(0.001, 0.001)] * 20, "val")
    training.end("train")
    timeline = timeline_of(training)
    assert timeline.main == training.number("train")
    assert seconds(timeline, Doing.BETWEEN) == 0


def test_a_loader_read_inside_anothers_next_is_part_of_that_wait() -> None:
    training = FakeTraining()
    training.begin("outer")
    for _ in range(3):
        before = training.now_ns
        training.begin("inner")
        training.take(0.1, "inner", nested=True)
        training.now_ns = before
        training.take(0.2, "outer")
        training.spend(0.1)
    training.end("outer")
    timeline = timeline_of(training)
    assert timeline.main == training.number("outer")
    assert timeline.wait_s == pytest.approx(0.6)


def test_warm_up_is_told_apart() -> None:
    training = FakeTraining()
    training.epoch([(5.0, 0.1)] * 2 + [(0.1, 0.1)] * 8)
    timeline = timeline_of(training, warmup_steps=2)
    assert len(timeline.batches) == 10
    assert len(timeline.measured_batches) == 8
    assert timeline.wait_s == pytest.approx(8 * 0.1)
    assert timeline.wall_s > 10


def test_batches_that_were_thinned_are_no_warm_up() -> None:
    """Of a long run with many loaders, fewer of each may be kept one by one than warm-up has steps."""
    training = FakeTraining()
    training.epoch([(0.01, 0.02)] * 10)
    many = Thinned(3000, training.batches[3].got_ns, 0, 0, (), ())
    training.batches[3] = training.batches[3]._replace(thinned=many)
    timeline = build_timeline(training.process(), 5)
    assert timeline is not None
    assert number_of(timeline.measured_batches) == 3006


def test_an_abandoned_epoch_ends_with_its_last_batch() -> None:
    training = FakeTraining()
    training.begin()
    for _ in range(4):
        training.take(0.1)
        training.spend(0.1)
    training.spend(100)  # whatever the script does after `break`
    timeline = timeline_of(training)
    assert timeline.wall_s == pytest.approx(0.4 + 0.3)
    assert len(timeline.steps) == 3


def test_a_process_without_batches_has_no_timeline() -> None:
    assert build_timeline(FakeTraining().process(), 5) is None
