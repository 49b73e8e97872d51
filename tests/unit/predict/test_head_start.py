"""Short runs whose slow warm-up let the workers fill the queue: their pace does not last."""

from __future__ import annotations

import pytest

from fake_forecaster import demands
from unstarve.model import Scenario
from unstarve.predict.demand import BatchDemand
from unstarve.predict.forecast import LoaderModel, model_loader, what_if
from unstarve.predict.recorded_run import WarmUp

LATENCY = BatchDemand(blocked_s=0.16, step_delay_s=0.01)
"""With 4 workers, a batch lasts 40 ms."""
SLOW_S = 0.5
AHEAD_S = 0.0327
"""Seconds per batch: of the 30 measured ones, 8 were ready and 22 came in rounds of 4."""


def recorded(period_s: float, step_s: float, batches: int = 30, workers: int = 4) -> LoaderModel:
    """A run of 4 workers whose five steps of warm-up took so many seconds each."""
    warm_up = WarmUp((step_s,) * 5, batches, 1.0)
    waits = 1 - 0.01 / period_s
    return model_loader(
        demands(LATENCY, workers, cores=8, period_s=period_s, warm_up=warm_up, wait_share=waits)
    )


@pytest.mark.parametrize("asked", [0, 1, 2, 4, 8])
def test_a_queue_that_a_slow_warm_up_filled_is_not_the_pace_of_later_steps(asked: int) -> None:
    predict = recorded(AHEAD_S, SLOW_S)
    lasting_s = 0.16 + 0.01 if not asked else max(0.16 / asked, 0.01)
    assert 1 / predict(Scenario(workers=asked)).steps_per_s == pytest.approx(lasting_s, rel=0.1)


def test_the_correction_is_told() -> None:
    notes = " ".join(what_if(recorded(AHEAD_S, SLOW_S)).notes)
    assert "a slow warm-up let the workers get ahead" in notes
    assert "warm-up" not in " ".join(what_if(recorded(0.04, 0.01)).notes)


def test_ordinary_warm_up_steps_change_nothing() -> None:
    predict = recorded(0.04, 0.01)
    assert predict.demand.period_s == pytest.approx(0.04, rel=0.06)
    assert predict.demand.wait_share == pytest.approx(0.75, abs=0.02)


def test_a_head_start_does_not_show_in_a_long_run() -> None:
    predict = recorded(0.04, SLOW_S, batches=5000)
    assert predict.demand.period_s == pytest.approx(0.04, rel=0.01)


def test_training_that_never_waits_has_no_head_start() -> None:
    predict = recorded(0.0101, SLOW_S, workers=32)
    assert predict.demand.head_start == pytest.approx(1.0, abs=0.02)
