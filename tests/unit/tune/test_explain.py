"""Tuning results, as JSON and in words."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from unstarve.model import Change, LoaderSettings, Trial, Tuning
from unstarve.tune.explain import explain

TUNING = Tuning(
    where="train.py:41",
    before=LoaderSettings(0),
    chosen=LoaderSettings(8, 1),
    trials=(Trial(LoaderSettings(0), "measured", 40, 2.0, 320.4, 300.0, 345.0, 0.91, 10**8, 0),),
    gain=Change(4.2, 3.9, 4.5, shown=True),
    keep=False,
    reason="4.20× as fast as yours",
    settled=True,
    steps=300,
    seconds=9.5,
    notes=("a note",),
)


def test_a_tuning_survives_json() -> None:
    assert Tuning.from_json(json.loads(json.dumps(TUNING.to_json()))) == TUNING


def test_json_says_of_any_settings_whether_unstarve_reads_the_images() -> None:
    tuning = replace(TUNING, chosen=LoaderSettings(8, part="images"))
    plain = tuning.to_json()
    assert plain["chosen"]["images"] is True
    assert plain["before"]["images"] is plain["trials"][0]["settings"]["images"] is False
    assert Tuning.from_json(plain) == tuning
    del plain["chosen"]["part"]  # as written before there were other parts
    assert Tuning.from_json(plain) == tuning


def test_what_is_no_tuning_is_refused() -> None:
    with pytest.raises(ValueError, match="not a tuning"):
        Tuning.from_json({"schema": "unstarve.report/1"})
    with pytest.raises(ValueError, match="not a tuning of this version"):
        Tuning.from_json({"schema": "unstarve.tuning/1", "before": {}})


def test_a_tuning_in_words() -> None:
    assert explain(TUNING).splitlines() == [
        "8 workers, 1 batch ahead each, instead of no worker: 4.20× as fast as yours (3.90–4.50)",
        "  no worker: 320 samples/s (300–345), waiting 91%",
        "  a note",
    ]


def test_a_setting_that_was_measured_again_and_again_has_one_line() -> None:
    again = Trial(LoaderSettings(0), "measured", 40, 2.0, 340.4, 320.0, 365.0, 0.89, 10**8, 0)
    text = explain(replace(TUNING, trials=(*TUNING.trials, again)))
    assert "  no worker: 330 samples/s (310–355), waiting 90%, measured 2 times" in text.splitlines()
