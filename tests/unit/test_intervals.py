"""Intervals are as wide as Student says, and turns go forth and back."""

from __future__ import annotations

import math

import pytest

from unstarve.intervals import half_width, t95, turn_order


def test_t_falls_to_the_normal_quantile() -> None:
    values = [t95(freedom) for freedom in range(1, 60)]
    assert values[0] == 12.706
    assert values == sorted(values, reverse=True)
    assert values[-1] == 1.96


def test_half_width_is_that_of_the_mean() -> None:
    assert half_width([1.0, 2.0, 3.0]) == pytest.approx(4.303 / math.sqrt(3))
    assert half_width([1.0]) == math.inf


def test_every_second_round_goes_backwards() -> None:
    assert [list(turn_order("abc", number)) for number in range(3)] == [list("abc"), list("cba"), list("abc")]
