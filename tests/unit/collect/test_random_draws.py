"""The first fetches tell whether samples are random."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from unstarve.collect.random_draws import DrawWatch, random_streams

DRAWS: list[Callable[[], Any]] = [
    lambda: torch.rand(1),
    random.random,
    np.random.rand,
    np.random.standard_normal,
]


def watched(*fetches: Callable[[], Any]) -> list[bool]:
    noted: list[bool] = []
    watch = DrawWatch(lambda kind, loader, drew: noted.append(drew))
    for fetch in fetches:
        before = watch.before(7)
        fetch()
        if before is not None:
            watch.after(7, before)
    return noted


@pytest.mark.parametrize("draw", DRAWS)
def test_a_draw_from_a_global_generator_is_noticed(draw: Callable[[], Any]) -> None:
    assert watched(draw) == [True]


def test_looking_changes_nothing() -> None:
    before = random_streams()
    assert before == random_streams()
    assert before is not None


def test_a_fetch_without_draws_is_noted_once_until_one_draws() -> None:
    assert watched(list, list, random.random, list, random.random) == [False, True]


def test_later_fetches_are_not_watched() -> None:
    assert watched(list, list, list, list, random.random) == [False]


def test_a_generator_that_cannot_be_read_leaves_it_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "getstate", lambda: 1 / 0)
    assert watched(random.random) == []
