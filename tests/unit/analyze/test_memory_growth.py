"""Growth that lasts is told apart from everything else that memory does."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from fakes import FakeTraining
from unstarve.analyze.memory_growth import common_trend, theil_sen, trend_in, trend_of
from unstarve.model import Trend

MB = 1e6


def series(
    value: Callable[[float], float], noise: float = 0.0, points: int = 40
) -> list[tuple[float, float]]:
    """A minute of looks; the noise is that of allocators: it comes and goes."""
    draws = random.Random(7)
    return [
        (t, value(t) + draws.uniform(-noise, noise)) for t in (60 * i / (points - 1) for i in range(points))
    ]


def test_a_leak_lasts_and_its_interval_holds_the_truth() -> None:
    trend = trend_of(series(lambda t: 200 * MB + 3 * MB * t, noise=5 * MB))
    assert trend is not None
    assert trend.lasting
    assert 0 < trend.low <= 3 * MB <= trend.high
    assert trend.grown == pytest.approx(180 * MB, abs=10 * MB)


@pytest.mark.parametrize(
    ("name", "value", "noise"),
    [
        ("nothing changes", lambda t: 200 * MB, 0.0),
        ("noise", lambda t: 200 * MB, 20 * MB),
        ("warm-up", lambda t: 200 * MB + min(t, 10) * 30 * MB, MB),
        ("a cache that is full after half of the time", lambda t: 200 * MB + min(t, 30) * 10 * MB, MB),
        ("a cache that fills ever more slowly", lambda t: 500 * MB * (1 - math.exp(-t / 12)), MB),
        ("an allocator that takes one more arena", lambda t: 200 * MB + (64 * MB if t > 40 else 0), MB),
        ("memory that is given back", lambda t: 500 * MB - 2 * MB * t, MB),
        ("epochs that fill and empty it", lambda t: 200 * MB + (t % 10) * 10 * MB, MB),
    ],
)
def test_what_healthy_trainings_do_does_not_last(
    name: str, value: Callable[[float], float], noise: float
) -> None:
    trend = trend_of(series(value, noise))
    assert trend is not None
    assert not trend.lasting, name


def test_too_few_looks_say_nothing() -> None:
    assert trend_of([]) is None
    assert trend_of(series(lambda t: MB * t, points=6)) is None  # two of them are warm-up
    assert trend_of([(1.0, 5.0)] * 20) is None


def test_many_looks_are_thinned() -> None:
    trend = trend_of(series(lambda t: MB * t, points=5000))
    assert trend is not None
    assert trend.per_s == pytest.approx(MB)


def test_outliers_do_not_move_the_slope() -> None:
    points = series(lambda t: 2.0 * t)
    points[20] = (points[20][0], 1e9)
    assert theil_sen(points)[0] == pytest.approx(2.0, rel=0.01)


def test_of_several_workers_most_have_to_grow() -> None:
    grows, rests = (
        Trend(5.0, 4.0, 6.0, 50.0, 80.0, lasting=True),
        Trend(0.0, -1.0, 1.0, 0.0, 9.0, lasting=False),
    )
    assert common_trend([]) is None
    assert common_trend([None, None]) is None
    assert common_trend([grows, grows, rests, None]) == grows
    half = common_trend([grows, rests])
    assert half is not None
    assert not half.lasting


def test_a_training_that_slows_down_leaks_all_the_same() -> None:
    training = FakeTraining(now_ns=0)
    training.epoch([(0.01, 0.04)] * 600 + [(0.01, 0.59)] * 50)  # half a minute each
    process = training.process()
    looks = [
        (at_s * 10**9, MB * sum(batch.got_ns <= at_s * 10**9 for batch in process.batches))
        for at_s in range(61)
    ]
    trend = trend_in(process, looks)
    assert trend is not None
    assert trend.lasting
    assert trend.per_batch == pytest.approx(MB)
    assert trend.low <= trend.per_s == pytest.approx(650 * MB / 60, rel=0.05)
    by_the_clock = trend_of([(at_ns / 1e9, value) for at_ns, value in looks])
    assert by_the_clock is not None
    assert not by_the_clock.lasting
