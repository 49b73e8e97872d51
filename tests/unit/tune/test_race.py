"""A few settings in turns, on a machine whose speed changes while it is measured."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from unstarve.model import LoaderSettings
from unstarve.tune.race import Race, compared, is_worth_it
from unstarve.tune.step_window import Block, StepWindow

OWN, FOUR, EIGHT = LoaderSettings(2, 2), LoaderSettings(4, 2), LoaderSettings(8, 2)


def window(settings: LoaderSettings, *block_s: float) -> StepWindow:
    return StepWindow(settings, tuple(Block(10, 10 * one) for one in block_s), wait_s=0.0)


def steady(period_s: float) -> StepWindow:
    return window(OWN, *(period_s * (1 + 0.01 * (-1) ** n) for n in range(8)))


def run(race: Race, period_s: Callable[[LoaderSettings, int], float]) -> list[LoaderSettings]:
    """Who was asked for; `period_s` says how a setting goes, as the so-maniest window."""
    asking, asked = race.run(), []
    try:
        asked.append(next(asking))
        while True:
            asked.append(asking.send(steady(period_s(asked[-1], len(asked)))))
    except StopIteration:
        return asked


def test_a_difference_beyond_the_noise_is_shown() -> None:
    change = compared([window(OWN, 0.10, 0.11, 0.10, 0.11)], [window(FOUR, 0.05, 0.051, 0.05, 0.051)])
    assert change.shown
    assert change.low < 2.08 < change.high


def test_a_difference_within_the_noise_is_not() -> None:
    assert not compared([window(OWN, 0.10, 0.14, 0.09)], [window(FOUR, 0.09, 0.13, 0.10)]).shown
    assert not compared([window(OWN, 0.10)], [window(FOUR, 0.08)]).shown


def test_one_pair_shows_a_large_gain_only_and_more_of_them_a_small_one() -> None:
    one = compared([steady(1.05)], [steady(1.0)])
    assert not one.shown
    many = compared([steady(1.05)] * 5, [steady(1.0)] * 5)
    assert is_worth_it(many)
    assert one.low < many.low < many.ratio < many.high < one.high


def test_what_slows_both_down_is_no_difference() -> None:
    moods = [1.0, 1.6, 0.8, 1.3]
    change = compared([steady(1.2 * mood) for mood in moods], [steady(mood) for mood in moods])
    assert change.ratio == pytest.approx(1.2)
    assert change.low > 1.1


def test_pairs_that_disagree_show_nothing() -> None:
    assert not compared([steady(1.3), steady(0.9), steady(1.2)], [steady(1.0)] * 3).shown


def test_who_is_clearly_faster_wins_after_two_rounds() -> None:
    race = Race(OWN, [EIGHT])
    assert run(race, lambda settings, n: 4.0 if settings == OWN else 1.0) == [EIGHT, OWN, OWN, EIGHT]
    assert race.best == EIGHT


def test_settings_go_forth_and_back_so_that_a_drift_evens_out() -> None:
    race = Race(OWN, [FOUR])
    asked = run(race, lambda settings, n: math.exp(0.03 * n))
    assert asked[:4] == [FOUR, OWN, OWN, FOUR]
    assert not is_worth_it(race.gain(OWN, FOUR))


def test_a_small_gain_is_found_under_a_large_drift() -> None:
    race = Race(OWN, [FOUR])
    run(race, lambda settings, n: (1.06 if settings == OWN else 1.0) * (1 + 0.3 * math.sin(n / 12)))
    assert race.best == FOUR
    assert is_worth_it(race.gain(OWN, FOUR))


def test_equal_settings_end_soon_with_the_users_own() -> None:
    race = Race(OWN, [FOUR, EIGHT])
    assert len(run(race, lambda settings, n: 1.0)) <= 9
    assert race.best == OWN


def test_equal_settings_on_a_restless_machine_end_when_the_mean_gain_would_not_be_worth_it() -> None:
    moods = [1.0, 1.15] * 8
    race = Race(OWN, [FOUR])
    asked = run(race, lambda settings, number: moods[number - 1])
    assert len(asked) == 8
    assert race.gain(OWN, FOUR).high > 1.04
    assert race.best == OWN


def test_of_others_that_are_as_fast_the_one_with_fewer_workers_is_taken() -> None:
    race = Race(OWN, [EIGHT, FOUR])
    asked = run(race, lambda settings, n: 2.0 if settings == OWN else 1.0)
    assert race.best == FOUR
    assert asked.count(OWN) == 2  # it has lost for sure


def test_who_is_second_of_the_others_runs_three_rounds_at_most_while_it_is_not_clear_who_wins() -> None:
    speeds = {OWN: 1.0, FOUR: 0.98, EIGHT: 0.99}

    def period_s(settings: LoaderSettings, n: int) -> float:
        unrest = 0.08 * (-1) ** ((n - 1) // 3) if settings == OWN else 0.0
        return speeds[settings] * math.exp(unrest)

    asked = run(Race(OWN, [EIGHT, FOUR]), period_s)
    assert asked.count(EIGHT) == 3
    assert asked.count(FOUR) == asked.count(OWN) == 6


def test_it_ends_however_noisy_it_is_and_is_hardly_ever_fooled() -> None:
    fooled = 0
    for seed in range(200):
        draw = random.Random(seed)

        def period_s(settings: LoaderSettings, n: int, draw: random.Random = draw) -> float:
            return math.exp(draw.gauss(0, 0.05)) * (1.0 if settings == OWN else 1.05)

        race = Race(OWN, [FOUR, EIGHT])
        assert len(run(race, period_s)) <= 18
        fooled += race.best != OWN and is_worth_it(race.gain(OWN, race.best))
    assert fooled <= 10
