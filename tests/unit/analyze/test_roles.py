from __future__ import annotations

import dataclasses

from fakes import FakeTraining, run_of
from unstarve.analyze.diagnose import analyze_run
from unstarve.analyze.roles import epoch_roles, loader_role
from unstarve.analyze.timeline import build_timeline
from unstarve.model import Backward, Role

STEPS = [(0.01, 0.03)] * 10


def roles(training: FakeTraining) -> dict[str, Role]:
    found = epoch_roles(training.process())
    return {name: loader_role(number, found) for name, number in training.loaders.items()}


def test_gradients_that_are_off_when_a_batch_is_asked_for_mean_validation() -> None:
    training = FakeTraining()
    training.validate(STEPS[:2])  # a sanity check comes before any training
    training.train(STEPS)
    training.validate(STEPS)
    assert roles(training) == {"train": Role.TRAIN, "val": Role.VALIDATION}


def test_gradients_that_are_off_only_in_the_body_do_too_once_another_loader_trains() -> None:
    training = FakeTraining()
    training.train(STEPS)
    training.validate(STEPS, no_grad=False)
    assert roles(training) == {"train": Role.TRAIN, "val": Role.VALIDATION}


def test_without_any_backward_pass_nothing_is_known() -> None:
    training = FakeTraining()
    training.epoch(STEPS, "a")
    training.epoch(STEPS, "b")
    assert roles(training) == {"a": Role.UNKNOWN, "b": Role.UNKNOWN}


def test_validation_in_the_middle_of_an_epoch_is_not_credited_with_the_training_around_it() -> None:
    training = FakeTraining()
    training.begin()
    for step in range(6):
        training.take(0.01)
        if step % 3 == 1:  # before the backward pass of this step
            training.validate(STEPS[:4], no_grad=False)
        training.backward()
        training.spend(0.03)
        if step % 3 == 2:  # after it, and left early
            training.begin("test")
            for _ in range(3):
                training.take(0.01, "test")
    training.end()
    assert roles(training) == {"train": Role.TRAIN, "val": Role.VALIDATION, "test": Role.VALIDATION}


def test_a_loader_around_a_training_loop_is_not_credited_with_its_backward_passes() -> None:
    training = FakeTraining()
    training.begin("tasks", no_grad=True)
    training.begin("shards")
    for _ in range(3):
        training.take(0.01, "tasks")
        training.take(0.01, "shards")
        training.train(STEPS)
    training.end("shards")
    training.end("tasks")
    assert roles(training) == {"tasks": Role.VALIDATION, "shards": Role.UNKNOWN, "train": Role.TRAIN}


def test_loaders_iterated_side_by_side_share_their_backward_passes() -> None:
    training = FakeTraining()
    training.begin("labelled")
    training.begin("unlabelled")
    for _ in range(5):
        training.take(0.01, "labelled")
        training.take(0.01, "unlabelled")
        training.backward()
        training.spend(0.03)
    training.end("labelled")
    assert roles(training) == {"labelled": Role.TRAIN, "unlabelled": Role.TRAIN}


def test_a_new_iterator_in_every_step_trains() -> None:
    training = FakeTraining()
    for _ in range(5):
        training.begin()
        training.take(0.01)
        training.backward()
        training.spend(0.03)
        training.begin("val", no_grad=True)
        training.take(0.01, "val")
    assert roles(training) == {"train": Role.TRAIN, "val": Role.VALIDATION}


def test_a_backward_pass_outweighs_gradients_that_are_off() -> None:
    """A prefetcher may ask for batches without gradients; an attack in validation needs a backward pass."""
    training = FakeTraining()
    training.begin("fetched", no_grad=True)
    for _ in range(3):
        training.take(0.01, "fetched")
        training.backward()
        training.spend(0.01)
    training.end("fetched")
    training.begin("train")
    training.take(0.01, "train")
    training.begin("attacked", no_grad=True)
    training.take(0.01, "attacked")
    training.backward()
    training.spend(0.01)
    training.end("attacked")
    training.end("train")
    assert roles(training) == {"fetched": Role.TRAIN, "train": Role.TRAIN, "attacked": Role.VALIDATION}


def test_a_first_look_at_a_loader_says_nothing() -> None:
    training = FakeTraining()
    training.begin("val")
    training.take(0.01, "val")
    training.train(STEPS)
    assert roles(training) == {"val": Role.UNKNOWN, "train": Role.TRAIN}


def test_backward_passes_of_other_threads_do_not_count() -> None:
    training = FakeTraining()
    training.epoch(STEPS)
    process = training.process()
    elsewhere = tuple(Backward(1, batch.got_ns) for batch in process.batches)
    found = epoch_roles(dataclasses.replace(process, backwards=elsewhere))
    assert set(found.values()) == {Role.UNKNOWN}


def test_epochs_of_one_loader_are_told_apart() -> None:
    training = FakeTraining()
    training.train(STEPS)
    training.validate(STEPS, "train")
    training.train(STEPS)
    timeline = build_timeline(training.process(), warmup_steps=0)
    assert timeline is not None
    assert [batch.epoch for batch in timeline.batches] == [0] * 10 + [2] * 10
    assert timeline.others == {(0, 1)}
    assert roles(training) == {"train": Role.TRAIN}


def test_validation_in_the_main_thread_does_not_hide_training_fed_by_another() -> None:
    fed, validating = FakeTraining(thread=1), FakeTraining(loaders={"train": 0})
    fed.epoch(STEPS * 3)
    validating.validate(STEPS)
    both = dataclasses.replace(
        validating.process(),
        epochs=(*fed.epochs, *validating.epochs),
        batches=tuple(sorted((*fed.batches, *validating.batches), key=lambda batch: batch.got_ns)),
    )
    diagnosis = analyze_run(run_of(both))
    assert "background thread" in diagnosis.verdict.headline


def test_training_that_takes_no_time_has_no_timeline() -> None:
    training = FakeTraining()
    training.validate(STEPS)
    training.begin()
    training.take(0.0)
    assert build_timeline(training.process(), warmup_steps=0) is None
