"""Times per batch, and what is made of several of them."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from unstarve.benchmark.measure_ways import (
    cpu_per_batch,
    median_ratio,
    same,
    seed_all,
    summary,
    time_per_batch,
)


class Epochs:
    """Four batches an epoch, each of which takes a second of a clock that nothing else moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.epochs = 0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def __iter__(self) -> Iterator[int]:
        self.epochs += 1
        self.now += 2.0  # the start of an epoch
        for number in range(4):
            self.now += 1.0
            yield number
        self.now += 1.0  # the end of an epoch


def test_the_start_and_the_end_of_an_epoch_count(monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = Epochs(monkeypatch)
    assert time_per_batch(epochs, least_s=0) == 7 / 4
    assert epochs.epochs == 1


def test_epochs_are_repeated_until_they_last_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = Epochs(monkeypatch)
    assert time_per_batch(epochs, least_s=13) == 14 / 8
    assert epochs.epochs == 2


def test_cpu_time_is_that_of_this_process_and_of_workers_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([(1.0, 2.0, 3.0, 4.0, 99.0), (2.0, 3.0, 7.0, 6.0, 120.0)])
    monkeypatch.setattr(os, "times", lambda: next(times))
    assert cpu_per_batch([1, 2, 3, 4]) == 8 / 4


def test_the_first_batches_and_the_end_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert time_per_batch(Epochs(monkeypatch), least_s=0, skip=3) == 1.0
    with pytest.raises(ValueError, match="at most 4 batches"):
        time_per_batch(Epochs(monkeypatch), least_s=0, skip=4)


def test_a_mean_needs_one_and_a_deviation_two() -> None:
    assert summary(()) == (None, None)
    assert summary((2.0,)) == (2.0, None)
    assert summary((1.0, 3.0)) == (2.0, pytest.approx(2**0.5))


def test_the_speed_up_is_the_median_over_rounds_not_the_ratio_of_means() -> None:
    # The machine was busy in the second round, for both.
    assert median_ratio([10.0, 40.0, 10.0], [1.0, 4.0, 2.0]) == 10.0
    assert median_ratio([], []) is None


def test_a_seed_repeats_all_kinds_of_random_numbers() -> None:
    drawn = []
    for _ in range(2):
        seed_all(7)
        drawn.append((torch.rand(1).item(), np.random.rand(), random.random()))
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        ({"x": torch.ones(2), "y": [1, (2,)]}, True),
        ({"x": torch.ones(2, dtype=torch.int64), "y": [1, (2,)]}, False),
        ({"x": torch.ones(3), "y": [1, (2,)]}, False),
        ({"x": torch.ones(2), "y": [1, (3,)]}, False),
        ({"x": torch.ones(2)}, False),
        ([1], False),
    ],
)
def test_batches_are_compared_by_value_type_and_structure(other: Any, equal: bool) -> None:
    assert same({"x": torch.ones(2), "y": [1, (2,)]}, other) is equal
