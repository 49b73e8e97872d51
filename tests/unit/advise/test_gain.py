"""Predicted gains: a plain model that never promises more than the headroom."""

from __future__ import annotations

import dataclasses

import pytest

from fakes import diagnosis_of
from unstarve.advise.gain import (
    MOST_WORKERS,
    cheaper,
    enough_workers,
    predict,
    with_workers,
    without_workers,
)
from unstarve.model import Cause, Headroom


@pytest.mark.parametrize("count", [1, 3, 8, 32])
def test_no_gain_is_promised_past_the_headroom(count: int) -> None:
    d = diagnosis_of(Cause.REMOTE, workers=1, remote_s=0.3)
    outcome = with_workers(d, count)
    assert outcome is not None
    gain = predict(d, outcome)
    assert gain is not None
    assert d.headroom is not None
    assert 1 <= gain.low <= gain.predicted <= gain.high <= d.headroom.high
    assert gain.predicted <= d.headroom.speedup


def test_waiting_work_gains_past_the_cores_and_cpu_work_does_not() -> None:
    waiting = diagnosis_of(Cause.REMOTE, workers=2, remote_s=0.16, cores=2, free_s=0.01)
    computing = diagnosis_of(Cause.CPU, workers=2, cpu_s=0.16, cores=2, free_s=0.01)
    for d, least, most in ((waiting, 3.5, 4.1), (computing, 1.0, 1.05)):
        outcome = with_workers(d, 8)
        assert outcome is not None
        gain = predict(d, outcome)
        assert gain is not None
        assert least <= gain.predicted <= most


def test_enough_workers_keep_up_with_a_step_that_never_waits() -> None:
    d = diagnosis_of(Cause.REMOTE, workers=2, remote_s=0.1, free_s=0.02)
    count = enough_workers(d)
    assert count is not None
    assert 0.1 / count <= 0.02
    assert count <= 8
    assert enough_workers(diagnosis_of(Cause.REMOTE, workers=2, remote_s=10, free_s=0.001)) == MOST_WORKERS
    assert enough_workers(diagnosis_of(Cause.CPU, workers=0, cpu_s=1.0, cores=4)) == 4


def test_a_core_that_others_use_is_not_counted_as_gain() -> None:
    alone = diagnosis_of(Cause.CPU, workers=0, cpu_s=0.06, cores=2, step_s=0.07, free_s=0.01)
    crowded = diagnosis_of(Cause.CPU, workers=0, cpu_s=0.06, queued_s=0.06, cores=2, step_s=0.13, free_s=0.01)
    gains = []
    for d in (alone, crowded):
        outcome = with_workers(d, 2)
        assert outcome is not None
        gain = predict(d, outcome)
        assert gain is not None
        gains.append(gain.predicted)
    assert gains[1] <= gains[0] * 1.05


def test_the_share_of_a_waits_cause_that_goes_away_is_gained() -> None:
    d = diagnosis_of(Cause.STARTUP, waits={Cause.STARTUP: 3.0, Cause.CPU: 1.0}, step_s=0.05, free_s=0.01)
    gain = predict(d, {Cause.STARTUP: 1.0}, worst={}, best={Cause.STARTUP: 1.0})
    assert gain is not None
    assert gain.predicted == pytest.approx(0.05 / 0.02)
    assert gain.low == 1


def test_a_stage_that_gets_cheaper_shortens_the_fetch() -> None:
    d = diagnosis_of(Cause.CPU, workers=2, cpu_s=0.1)
    assert d.demand is not None
    assert cheaper(d.demand, "cpu_s", 0.5).fetch_s == pytest.approx(d.demand.fetch_s - 0.05)
    assert cheaper(d.demand, "collate_s", 0.0).fetch_s == d.demand.fetch_s
    assert without_workers(d.demand).workers == 0


def test_nothing_is_predicted_without_a_headroom_and_nothing_below_one() -> None:
    d = diagnosis_of(Cause.CPU, workers=2, cpu_s=0.1)
    assert d.demand is not None
    assert predict(dataclasses.replace(d, headroom=None), d.demand) is None
    slower = predict(d, dataclasses.replace(d.demand, workers=1))
    assert slower is not None
    assert slower.predicted == slower.low == 1
    none = dataclasses.replace(d, headroom=Headroom(0.98, 0.95, 1.01, "replay"))
    gain = predict(none, dataclasses.replace(d.demand, workers=8))
    assert gain is not None
    assert (gain.predicted, gain.low) == (1, 1)
    assert gain.high <= 1.01
