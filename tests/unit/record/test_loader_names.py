"""Loaders that one line creates have different names, and the same ones in every rank."""

from __future__ import annotations

from dataclasses import replace

from fakes import FakeTraining
from unstarve.model import Loader, Process
from unstarve.record.loader_names import tell_apart


def loader(number: int, length: int | None, created: int | None, name: str = "made") -> Loader:
    config = {"dataset": "Images"} if length is None else {"dataset": "Images", "dataset_len": length}
    return Loader(number, name, "train.py:12", "DataLoader", config, created=created)


def rank(*loaders: Loader) -> Process:
    return replace(FakeTraining().process(), loaders=loaders)


def names(*ranks: Process) -> list[list[str]]:
    return [[one.name for one in process.loaders] for process in tell_apart(ranks)]


def test_a_line_that_creates_one_loader_names_it_as_before() -> None:
    assert names(rank(loader(0, 9, 1)), rank(loader(0, 8, 1))) == [["made"], ["made"]]


def test_several_are_counted_in_the_order_of_creation() -> None:
    assert names(rank(loader(0, 8, 2), loader(1, 50, 1))) == [["made (2nd of 2)", "made (1st of 2)"]]


def test_loaders_without_a_variable_are_named_by_their_line() -> None:
    unnamed = rank(loader(0, 50, 1, "loader 1"), loader(1, 8, 2, "loader 2"))
    assert names(unnamed) == [["loader at train.py:12 (1st of 2)", "loader at train.py:12 (2nd of 2)"]]


def test_the_only_loader_of_a_line_keeps_its_number() -> None:
    other = replace(loader(1, 8, 2, "loader 2"), where="train.py:40")
    assert names(rank(loader(0, 50, 1, "loader 1"), other)) == [["loader 1", "loader 2"]]


def test_a_rank_that_does_not_validate_agrees_with_the_others() -> None:
    both = rank(loader(0, 50, 1), loader(1, 8, 2))
    assert names(rank(loader(0, 8, 2)), both, rank(loader(0, 50, 1))) == [
        ["made (2nd of 2)"],
        ["made (1st of 2)", "made (2nd of 2)"],
        ["made (1st of 2)"],
    ]


def test_an_unknown_dataset_takes_the_place_that_is_left() -> None:
    both = rank(loader(0, 50, 1), loader(1, 8, 2))
    assert names(both, rank(loader(0, None, 1)))[1] == ["made (1st of 2)"]


def test_runs_from_before_keep_the_names_that_they_have() -> None:
    old = rank(loader(0, None, None), loader(1, None, None, "made #2"))
    assert names(old) == [["made", "made #2"]]


def test_the_same_name_at_another_line_is_another_loader() -> None:
    other = replace(loader(1, 8, 2), where="train.py:40")
    assert names(rank(loader(0, 50, 1), other)) == [["made", "made"]]
