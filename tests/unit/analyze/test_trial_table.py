"""Trials of a tuning, by setting; and what a tuning that was cut short has shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unstarve.analyze.trial_table import so_far, tried
from unstarve.model import LoaderSettings, Trial, Tuning

NONE, TWO, FOUR = LoaderSettings(0), LoaderSettings(2, 2), LoaderSettings(4, 2)


def trial(settings: LoaderSettings, per_s: float, *, spread: float = 0.05, seconds: float = 1.0) -> Trial:
    low, high = per_s * (1 - spread), per_s * (1 + spread)
    return Trial(settings, "measured", 10, seconds, per_s, low, high, 0.5, 1000, 10)


def tuning(*trials: Trial, chosen: LoaderSettings = NONE, settled: bool = False) -> Tuning:
    return Tuning(None, NONE, chosen, trials, None, chosen == NONE, "still measuring", settled, 10, 1.0)


def test_a_setting_that_was_tried_twice_has_one_line_weighed_by_time() -> None:
    trials = (trial(TWO, 300), trial(NONE, 100, seconds=3), trial(NONE, 200, seconds=1))
    none, two = tried(tuning(*trials, chosen=TWO))
    assert (none.settings, none.samples_per_s, none.times, none.steps) == (NONE, 125, 2, 20)
    assert (none.own, none.chosen, none.speedup) == (True, False, 1.0)
    assert (two.own, two.chosen, two.speedup) == (False, True, 300 / 125)


def test_predictions_and_unknowns_are_not_made_up() -> None:
    guess = replace(trial(FOUR, 900), kind="predicted")
    bare = replace(trial(TWO, 300), wait_share=None, rss_bytes=None, shm_bytes=None)
    (line,) = tried(tuning(guess, bare))
    assert (line.settings, line.wait_share, line.rss_bytes, line.shm_bytes) == (TWO, None, None, None)
    assert line.speedup is None


def test_cut_short_the_gain_is_what_the_trials_show() -> None:
    found = so_far(tuning(trial(NONE, 100), trial(TWO, 300), chosen=TWO))
    assert found.chosen == TWO
    assert not found.keep
    assert found.gain is not None
    assert found.gain.ratio == pytest.approx(3)
    assert 2 < found.gain.low < 3 < found.gain.high < 4.5


@pytest.mark.parametrize(
    "trials",
    [
        (trial(NONE, 100, spread=0.3), trial(TWO, 120, spread=0.3)),
        (trial(TWO, 300),),
    ],
)
def test_cut_short_without_proof_the_users_own_settings_stay(trials: tuple[Trial, ...]) -> None:
    found = so_far(tuning(*trials, chosen=TWO))
    assert found.chosen == NONE
    assert found.keep
    assert found.reason == "too little was measured to tell"


def test_cut_short_a_gain_is_as_sure_as_trials_of_one_setting_agree() -> None:
    steady = so_far(tuning(trial(NONE, 100), trial(NONE, 102), trial(TWO, 200), chosen=TWO))
    assert steady.chosen == TWO
    assert steady.gain is not None
    assert steady.gain.low > 1.5
    drifting = so_far(tuning(trial(NONE, 100), trial(NONE, 300), trial(TWO, 700), chosen=TWO))
    assert drifting.keep
    once = so_far(tuning(trial(NONE, 100), trial(TWO, 130), chosen=TWO))
    assert once.keep


def test_what_is_settled_stays_as_it_is() -> None:
    done = tuning(trial(NONE, 100), trial(TWO, 300), chosen=TWO, settled=True)
    assert so_far(done) is done
