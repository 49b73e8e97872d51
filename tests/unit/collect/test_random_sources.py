"""Random numbers that a dataset draws from a generator of its own."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from unstarve.collect.random_sources import keeps_random_state


def labels() -> Any:
    return np.random.default_rng(1).integers(0, 10, 8)


class Fixed:
    def __init__(self) -> None:
        self.labels = labels()

    def __getitem__(self, index: int) -> Any:
        return self.labels[index]


class Drawing(Fixed):
    def __getitem__(self, index: int) -> Any:
        return labels()[index]


class Holding(Fixed):
    def __init__(self, source: Any) -> None:
        super().__init__()
        self.source = source


def test_an_attribute_named_like_a_function_that_draws_is_not_that_function() -> None:
    assert not keeps_random_state(Fixed())


def test_a_function_that_makes_a_generator_in_every_fetch_is_a_source() -> None:
    assert keeps_random_state(Drawing())


@pytest.mark.parametrize(
    "source", [random.Random(0), np.random.default_rng(0), np.random.RandomState(0), torch.Generator()]
)
def test_a_generator_that_the_dataset_holds_is_a_source(source: Any) -> None:
    assert keeps_random_state(Holding(source))
    assert keeps_random_state(Holding([{"deep": source}]))


def test_a_dataset_that_hears_of_epochs_may_differ_by_epoch() -> None:
    class Epochs(Fixed):
        def set_epoch(self, epoch: int) -> None: ...

    assert keeps_random_state(Epochs())
