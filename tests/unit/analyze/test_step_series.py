"""Every loader of every rank, step by step."""

from __future__ import annotations

import dataclasses

import pytest

from fakes import FakeTraining, run_of, simple_run
from large_run import large_run
from unstarve.analyze.step_series import most_changed, series_of
from unstarve.model import Batch, Cause, Loader, Run, Series, Stall, StepPoint


def test_a_step_ends_with_the_batch_that_was_waited_for() -> None:
    (series,) = series_of(simple_run([(0.5, 0.1), (0.3, 0.2), (0.4, 0.1)]))
    assert [point.wait_s for point in series.points] == pytest.approx([0.5, 0.3, 0.4])
    assert [point.step_s for point in series.points] == [None, pytest.approx(0.4), pytest.approx(0.6)]
    assert series.points[1].stall_share == pytest.approx(0.75)
    assert series.points[1].samples_per_s == pytest.approx(8 / 0.4)
    assert series.step_s == pytest.approx(1.0)
    assert series.stall_s == pytest.approx(0.7)
    assert series.samples == 24


def test_the_causes_of_all_steps_sum_to_the_waits() -> None:
    (series,) = series_of(large_run(40, 2))
    assert sum(series.waits.values()) == pytest.approx(sum(point.wait_s for point in series.points))
    assert {Cause.CPU, Cause.HANDOFF} <= set(series.waits)


def test_the_first_step_of_an_epoch_has_no_length() -> None:
    training = FakeTraining()
    training.epoch([(0.1, 0.1)] * 2)
    training.spend(5)
    training.epoch([(0.1, 0.1)] * 2)
    (series,) = series_of(run_of(training))
    assert [point.step_s is None for point in series.points] == [True, False, True, False]


def two_loaders() -> Run:
    training = FakeTraining()
    training.epoch([(0.1, 0.1)] * 6, "train")
    training.epoch([(0.1, 0.1)] * 2, "valid")
    return run_of(training)


def test_the_main_loader_is_told_from_the_others() -> None:
    train, valid = series_of(two_loaders())
    assert (train.loader, train.main, valid.loader, valid.main) == ("train", True, "valid", False)


def test_loaders_of_one_name_are_told_apart() -> None:
    (process,) = two_loaders().processes
    same = tuple(Loader(n, "loader", f"train.py:{n}", "DataLoader") for n in range(2))
    series = series_of(run_of(dataclasses.replace(process, loaders=same)))
    assert [one.loader for one in series] == ["loader", "loader #2"]


def test_ranks_are_apart() -> None:
    trainings = [FakeTraining(rank=rank) for rank in range(2)]
    for training in trainings:
        training.epoch([(0.1, 0.1)] * 3)
    assert [one.rank for one in series_of(run_of(*trainings))] == [0, 1]


def test_on_a_device_the_stall_is_the_devices_own() -> None:
    training = FakeTraining(device="H200")
    training.epoch([(0.1, 0.1)] * 3)
    process = training.process()

    def stall(batch: Batch, device: int, seconds: float) -> Stall:
        at = (batch.loader, batch.epoch, batch.position, device, batch.ask_ns, batch.got_ns)
        return Stall(*at, round(seconds * 1e9))

    second = process.batches[1]
    seen = dataclasses.replace(process, stalls=(stall(second, 0, 0.02), stall(second, 1, 0.04)))
    (series,) = series_of(run_of(seen))
    assert [point.stall_s for point in series.points] == [None, pytest.approx(0.03), None]
    assert series.points[2].stall_share is None
    assert series.stall_s is None


def series_with(*causes: dict[Cause, float]) -> Series:
    points = tuple(
        StepPoint(at, sum(parts.values()), 1.0, None, 8, None, parts) for at, parts in enumerate(causes)
    )
    return Series(None, 1, "train", True, 0, points, {}, 1.0, None)


@pytest.mark.parametrize(
    ("after", "cause"),
    [
        ({Cause.DISK: 0.5, Cause.CPU: 0.2}, Cause.DISK),
        ({Cause.CPU: 0.05}, Cause.CPU),
        ({Cause.CPU: 0.1, Cause.UNKNOWN: 0.9}, None),
        ({Cause.CPU: 0.1}, None),
    ],
)
def test_what_changed_the_most_is_named(after: dict[Cause, float], cause: Cause | None) -> None:
    series = series_with({Cause.CPU: 0.1}, {Cause.CPU: 0.1}, after, after)
    assert most_changed(series, (0, 1), (2, 3)) is cause


def test_a_time_without_a_batch_explains_nothing() -> None:
    series = series_with({Cause.CPU: 0.1}, {Cause.CPU: 0.2})
    assert most_changed(series, (0, 1), (7, 9)) is None
