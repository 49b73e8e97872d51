"""A stretch of steps on a constructed clock."""

from __future__ import annotations

import random
from collections.abc import Iterator

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


def test_bursts_are_measured_whole_and_more_than_one_however_long_they_take() -> None:
    collector = WindowCollector(LoaderSettings(4, 2), WindowPace())
    collector.begin(skip=4)
    clock, window, n = Clock(collector), None, 1
    while window is None:  # four batches at once, then nothing for a second
        window = clock.step(1.2 if n % 4 == 0 else 0.0, 0.05)
        n += 1
    assert window.period_s == pytest.approx(0.35, rel=1e-6)
    assert window.error_s < 0.01
    assert [block.steps for block in window.blocks] == [4, 4, 4]


def test_a_window_goes_on_over_the_end_of_an_epoch() -> None:
    collector = WindowCollector(LoaderSettings(4, 2), WindowPace())
    clock, window = Clock(collector), None
    for _ in range(2):
        assert window is None
        collector.begin_epoch(clock.now)
        collector.begin(skip=4)
        clock.now += 3.0  # what an epoch's start costs is priced in elsewhere
        for n in range(1, 15):
            window = clock.step(1.2 if n % 4 == 1 else 0.0, 0.05) or window
        if window is None:
            assert collector.end_epoch(clock.now) is None
        clock.now += 60.0
    assert window is not None
    assert window.period_s == pytest.approx(0.35, rel=1e-6)
    assert not window.whole_epochs


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


def test_epochs_too_short_for_bursts_are_measured_whole_with_their_start() -> None:
    collector = WindowCollector(LoaderSettings(8, 2), WindowPace())
    clock, window = Clock(collector), None
    for n in range(3):
        assert window is None
        collector.begin_epoch(clock.now, whole=True)
        collector.begin(skip=8)
        for step in range(4):
            clock.step(0.14 if step == 0 else 0.05, 0.01 if step else 0.0)
        clock.now += 0.01
        window = collector.end_epoch(clock.now)
        clock.now += 60.0  # validation
        assert (window is None) == (n < 2)
    assert window is not None
    assert window.whole_epochs
    assert window.steps == 12
    assert window.period_s == pytest.approx(0.0825)
    assert window.step_s == pytest.approx(0.01)


def epochs_of(collector: WindowCollector, batches: int, wait_s: float) -> Iterator[StepWindow | None]:
    clock = Clock(collector)
    while True:
        collector.begin_epoch(clock.now)
        collector.begin(skip=1)
        for _ in range(batches):
            assert clock.step(wait_s, 0.002) is None
        yield collector.end_epoch(clock.now)


def test_the_bursts_of_a_few_short_epochs_make_a_window_without_the_start_of_the_epochs() -> None:
    collector = WindowCollector(LoaderSettings(1, 2), WindowPace(min_steps=1000))
    windows = [window for window, _ in zip(epochs_of(collector, 20, 0.008), range(3), strict=False)]
    assert windows[:2] == [None, None]
    last = windows[2]
    assert last is not None
    assert not last.whole_epochs
    assert last.period_s == pytest.approx(0.01)


def test_what_there_is_when_training_ends_makes_a_window() -> None:
    collector = WindowCollector(LoaderSettings(8, 2), WindowPace())
    assert collector.so_far() is None
    assert next(epochs_of(collector, 20, 0.008)) is None
    window = collector.so_far()
    assert window is not None
    assert (window.steps, window.whole_epochs) == (20, True)
