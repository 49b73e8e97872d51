"""Which saved settings a loader gets: those of its place, also when lines have moved."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from unstarve.model import Maker, Place, SavedLoader, Span
from unstarve.model.saved import best_match, saved_from_plain

TRAIN = Place("/home/ann/train.py", 10, "main", "train_loader", "aaa")
SAVED = [SavedLoader(TRAIN, {"num_workers": 4})]


@pytest.mark.parametrize(
    "place",
    [
        TRAIN,
        replace(TRAIN, line=99),
        replace(TRAIN, call="edited"),
        replace(TRAIN, name="renamed"),
        replace(TRAIN, line=99, name="renamed"),
        replace(TRAIN, line=99, function="moved"),
        replace(TRAIN, file="train.py"),
        replace(TRAIN, span=Span(1, 2, 3, 4)),
    ],
)
def test_a_loader_is_known_again(place: Place) -> None:
    assert best_match(SAVED, place) == 0


@pytest.mark.parametrize(
    "place",
    [
        Place("/home/ann/train.py", 10, "main", "val_loader", "bbb"),
        replace(TRAIN, line=99, call="edited"),
        replace(TRAIN, line=99, name="renamed", function="moved"),
        replace(TRAIN, file="/other/train.py"),
        replace(TRAIN, file="/home/ann/eval.py"),
        Place("/home/ann/train.py", 10, "main", "val_loader", None),
    ],
)
def test_its_neighbours_are_not_taken_for_it(place: Place) -> None:
    assert best_match(SAVED, place) is None


def test_an_entry_written_by_hand_needs_only_file_and_line() -> None:
    by_hand = [SavedLoader(Place("train.py", 10), {"num_workers": 4})]
    assert best_match(by_hand, replace(TRAIN, name=None)) == 0
    assert best_match(by_hand, TRAIN) == 0
    assert best_match(by_hand, replace(TRAIN, line=11)) is None


def test_of_two_equal_calls_each_gets_its_own() -> None:
    same = Place("/home/ann/train.py", 10, "main", None, "aaa")
    saved = [SavedLoader(same, {"num_workers": 1}), SavedLoader(replace(same, line=20), {"num_workers": 2})]
    assert [best_match(saved, replace(same, line=line)) for line in (10, 20, 13, 18)] == [0, 1, 0, 1]


def test_nothing_saved_matches_nothing() -> None:
    assert best_match([], TRAIN) is None


def test_settings_survive_json() -> None:
    place = replace(TRAIN, span=Span(1, 2, 3, 4), dataset="Images[50]", nth=2, maker=Maker("timm"))
    one = SavedLoader(place, {"num_workers": 4})
    assert saved_from_plain(json.loads(json.dumps(asdict(one)))) == one


def test_of_several_loaders_of_one_line_only_that_of_the_same_dataset_matches() -> None:
    saved = [SavedLoader(replace(TRAIN, dataset="Images[50]"), {"num_workers": 4})]
    assert best_match(saved, replace(TRAIN, dataset="Images[50]", nth=1)) == 0
    assert best_match(saved, replace(TRAIN, dataset="Images[8]", nth=1)) is None


def test_of_equal_datasets_only_the_same_number_matches() -> None:
    saved = [SavedLoader(replace(TRAIN, dataset="Images[50]", nth=2), {"num_workers": 4})]
    found = [best_match(saved, replace(TRAIN, dataset="Images[50]", nth=nth)) for nth in (1, 2, 3)]
    assert found == [None, 0, None]


def test_a_file_from_before_says_nothing_about_datasets_and_matches_all() -> None:
    assert best_match(SAVED, replace(TRAIN, dataset="Images[8]", nth=2)) == 0


def test_what_a_framework_created_it_for_must_agree() -> None:
    train = Place("/home/ann/train.py", 10, "<module>", "Trainer's train dataloader", "aaa")
    saved = [SavedLoader(train, {"num_workers": 4})]
    assert best_match(saved, replace(train, line=99)) == 0
    assert best_match(saved, replace(train, name="Trainer's eval dataloader")) is None
    assert best_match([SavedLoader(replace(train, name=None), {"num_workers": 4})], train) == 0
