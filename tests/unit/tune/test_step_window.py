"""A stretch of steps on a constructed clock."""

from __future__ import annotations

import random

import pytest

from unstarve.model import LoaderSettings
from unstarve.tune.step_window import StepWindow, WindowCollector, WindowPace

TWO = LoaderSettings(2, 2)


class Clock:
    """Plays a training loop into a collector."""

    def __init__(self, collector: WindowCollector) -> None:
        self.collector = collector
        self.now = 100.0

    def step(self, wait_s: float, step_s: float) -> StepWindow | None:
        asked = self.now + step_s
        self.now = asked + wait_s
        return self.collector.add(asked, self.now)

    def steps(self, wait_s: float, step_s: float, most: int = 10_000) -> StepWindow:
        for _ in range(most):
            window = self.step(wait_s, step_s)
            if window is not None:
                return window
        raise AssertionError("the window is never complete")


def test_a_window_tells_waiting_from_training() -> None:
    window = Clock(WindowCollector(TWO, WindowPace())).steps(0.03, 0.01)
    assert window.period_s == pytest.approx(0.04)
    assert window.step_s == pytest.approx(0.01)
    assert window.wait_share == pytest.approx(0.75)
    assert window.steps >= 12
    assert window.seconds >= 0.3


def test_batches_that_fill_the_pipeline_do_not_count() -> None:
    collector = WindowCollector(TWO, WindowPace())
    collector.begin(skip=5)
    clock = Clock(collector)
    for _ in range(5):
        clock.step(3.0, 0.01)
        assert not collector.is_measuring or collector.steps == 0
    assert clock.steps(0.0, 0.02).period_s == pytest.approx(0.02)


def test_a_checkpoint_now_and_then_is_not_the_loaders_doing() -> None:
    clock = Clock(WindowCollector(TWO, WindowPace(min_steps=40, min_s=0.0, max_s=0.0)))
    clock.step(0.01, 0.01)
    clock.step(0.01, 30.0)
    assert clock.steps(0.01, 0.01).period_s == pytest.approx(0.02)


def test_long_steps_that_come_often_are_how_training_goes() -> None:
    clock = Clock(WindowCollector(LoaderSettings(0), WindowPace(min_steps=40, min_s=0.0, max_s=0.0)))
    for n in range(39):
        clock.step(0.01, 0.1 if n % 4 == 0 else 0.01)  # cores that loading takes now and then
    assert clock.steps(0.01, 0.01).period_s > 0.04


def test_what_varies_is_measured_longer_but_not_for_ever() -> None:
    clock = Clock(WindowCollector(LoaderSettings(0), WindowPace(max_s=2.0)))
    draw, window = random.Random(1), None
    while window is None:
        window = clock.step(draw.expovariate(50), 0.0)
    assert 1.9 <= window.seconds <= 2.2
    assert window.error_s > 0.03 * window.period_s


def test_batches_come_in_cycles_of_the_workers_and_so_they_are_averaged() -> None:
    clock = Clock(WindowCollector(LoaderSettings(4, 2), WindowPace()))
    window, n = None, 0
    while window is None:
        window = clock.step(0.07 if n % 4 == 0 else 0.0, 0.01)
        n += 1
    assert window.period_s == pytest.approx(0.0275, rel=0.02)
    assert window.error_s < 0.001


def test_an_exception_in_between_is_not_a_long_step() -> None:
    collector = WindowCollector(LoaderSettings(0), WindowPace())
    clock = Clock(collector)
    for _ in range(5):
        clock.step(0.01, 0.01)
    collector.interrupt()
    clock.now += 60
    assert clock.steps(0.01, 0.01).period_s == pytest.approx(0.02)


def test_three_short_epochs_make_a_window() -> None:
    collector = WindowCollector(TWO, WindowPace())
    clock = Clock(collector)
    for n in range(3):
        for _ in range(4):
            clock.step(0.05, 0.01)
        collector.interrupt()
        window = collector.add_epoch(4, 0.4)
        assert (window is None) == (n < 2)
    assert window is not None
    assert window.period_s == pytest.approx(0.1)
    assert window.step_s == pytest.approx(0.01)
