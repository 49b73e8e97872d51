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
    noted: list[tuple[str, dict[str, Any]]] = []
    watch = DrawWatch(lambda kind, **fields: noted.append((kind, fields)))
    for fetch in fetches:
        before = watch.before(7)
        fetch()
        if before is not None:
            watch.after(7, before)
    return [fields["drew"] for kind, fields in noted if kind == "draws"]


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


def test_the_state_before_the_first_fetch_is_noted_once_for_libraries_that_were_drawn_from() -> None:
    noted: list[dict[str, Any]] = []
    watch = DrawWatch(lambda kind, **fields: noted.append(fields) if kind == "streams" else None)
    for loader, seed, fetch in (
        (1, 7, list),
        (1, 8, np.random.rand),
        (2, 7, np.random.rand),
        (1, 9, random.random),
    ):
        np.random.seed(seed)
        before = watch.before(loader)
        assert before is not None
        fetch()
        watch.after(loader, before)
    one, two = noted
    assert one["numpy"] == two["numpy"]
    assert one["numpy"] is not None
    assert one["python"] is one["torch"] is None
