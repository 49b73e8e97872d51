"""Predicted gains: what the forecaster says, and never more than the headroom."""

from __future__ import annotations

import dataclasses

import pytest

from fake_forecaster import with_forecaster
from fakes import diagnosis_of
from unstarve.advise.gain import UNCHANGED, cheaper, enough_workers, predict
from unstarve.model import Cause, Diagnosis, Gain, Headroom, Scenario


def gain_of(d: Diagnosis, scenario: Scenario) -> Gain:
    gain = predict(with_forecaster(d), scenario)
    assert gain is not None
    return gain


@pytest.mark.parametrize("count", [1, 3, 32])
def test_no_gain_is_promised_past_the_headroom(count: int) -> None:
    d = diagnosis_of(Cause.REMOTE, workers=1, remote_s=0.3, step_s=0.3, free_s=0.1)
    gain = gain_of(d, Scenario(workers=count))
    assert d.headroom is not None
    assert gain.low <= gain.predicted <= d.headroom.speedup
    assert gain.predicted <= gain.high <= 1.06 * d.headroom.speedup  # steps vary


def test_waiting_work_gains_past_the_cores_and_cpu_work_does_not() -> None:
    waiting = diagnosis_of(Cause.REMOTE, workers=2, remote_s=0.16, cores=2, step_s=0.08, free_s=0.01)
    computing = diagnosis_of(Cause.CPU, workers=2, cpu_s=0.16, cores=2, step_s=0.08, free_s=0.01)
    assert 3.5 <= gain_of(waiting, Scenario(workers=8)).predicted <= 4.1
    assert gain_of(computing, Scenario(workers=8)).predicted <= 1.05


def test_enough_workers_keep_up_with_a_step_that_never_waits() -> None:
    d = with_forecaster(diagnosis_of(Cause.REMOTE, workers=2, remote_s=0.1, step_s=0.05, free_s=0.02))
    count = enough_workers(d)
    assert count is not None
    assert 0.1 / count <= 0.02
    assert count <= 8
    assert (
        enough_workers(with_forecaster(diagnosis_of(Cause.CPU, workers=0, cpu_s=1.0, step_s=1.02, cores=4)))
        == 4
    )
    assert enough_workers(diagnosis_of(Cause.CPU)) is None


def test_a_core_that_others_use_is_not_counted_as_gain() -> None:
    alone = diagnosis_of(Cause.CPU, workers=0, cpu_s=0.06, cores=2, step_s=0.07, free_s=0.01)
    crowded = diagnosis_of(Cause.CPU, workers=0, cpu_s=0.06, queued_s=0.06, cores=2, step_s=0.13, free_s=0.01)
    gains = [gain_of(d, Scenario(workers=2)).predicted for d in (alone, crowded)]
    assert gains[0] > 1.8
    assert gains[1] < gains[0]


def test_the_interval_holds_what_a_change_may_come_to() -> None:
    d = with_forecaster(diagnosis_of(Cause.COLLATE, workers=1, collate_s=0.1, step_s=0.1, free_s=0.01))
    gain = predict(d, cheaper("collate", 0.5), worst=UNCHANGED, best=cheaper("collate", 0.0))
    assert gain is not None
    assert gain.predicted == pytest.approx(2, rel=0.1)
    assert gain.low == 1
    assert gain.high > 5


def test_the_share_of_a_waits_cause_that_goes_away_is_gained() -> None:
    d = diagnosis_of(Cause.COPY, waits={Cause.COPY: 3.0, Cause.CPU: 1.0}, step_s=0.05, free_s=0.01)
    gain = predict(d, {Cause.COPY: 1.0}, worst={}, best={Cause.COPY: 1.0})
    assert gain is not None
    assert gain.predicted == pytest.approx(0.05 / 0.02)
    assert gain.low == 1


def test_nothing_is_predicted_without_headroom_or_forecaster_and_a_loss_is_said() -> None:
    d = diagnosis_of(Cause.CPU, workers=2, cpu_s=0.1)
    assert predict(d, Scenario(workers=4)) is None
    known = with_forecaster(d)
    assert predict(dataclasses.replace(known, headroom=None), Scenario(workers=4)) is None
    slower = predict(known, Scenario(workers=1))
    assert slower is not None
    assert slower.low <= slower.predicted < 1
    none = dataclasses.replace(known, headroom=Headroom(0.98, 0.95, 1.01, "replay"))
    gain = predict(none, Scenario(workers=8))
    assert gain is not None
    assert gain.low <= gain.predicted <= 1
    assert gain.high <= 1.01


@pytest.mark.parametrize(("method", "past"), [("estimate", True), ("replay", False)])
def test_only_an_estimated_headroom_may_be_passed_and_only_by_the_interval_of_fewer_workers(
    method: str, past: bool
) -> None:
    d = diagnosis_of(Cause.HANDOFF, workers=2, cpu_s=0.001, handoff_s=0.1)
    d = dataclasses.replace(d, headroom=Headroom(1.5, 1.4, 1.6, method))
    fewer, more = gain_of(d, Scenario(workers=0)), gain_of(d, Scenario(workers=8))
    assert fewer.predicted <= 1.5
    assert (fewer.high > 1.6) is past
    assert more.high <= 1.6
