"""The process's random streams are read after every batch; a stream that was not drawn from costs little."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from unstarve.fixes.loader.resume import random_state
from unstarve.fixes.loader.resume.random_state import ProcessStreams, process_state, set_process_state

DRAWS: dict[str, Callable[[], Any]] = {
    "torch": lambda: torch.rand(()),
    "numpy": np.random.random,
    "numpy, the spare number": np.random.randn,
    "python": random.random,
    "python, the spare number": lambda: random.gauss(0, 1),
}


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = process_state()
    yield
    set_process_state(before)


@pytest.fixture(params=["as CPython keeps it", "asked for"], autouse=True)
def _python_stream(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "asked for":
        monkeypatch.setattr(random_state, "_python_address", lambda generator: None)


def test_what_was_not_drawn_from_is_the_very_same() -> None:
    streams = ProcessStreams()
    assert streams.read() == process_state()
    assert streams.read() is streams.read()


@pytest.mark.parametrize("name", DRAWS)
def test_every_draw_is_noticed(name: str) -> None:
    streams = ProcessStreams()
    for _ in range(700):  # more than the 624 words that these generators make at a time
        before = streams.read()
        DRAWS[name]()
        after = streams.read()
        assert after is not before
        assert after == process_state()


@pytest.mark.parametrize("seed", [torch.manual_seed, np.random.seed, random.seed])
def test_a_new_seed_is_noticed(seed: Callable[[int], Any]) -> None:
    streams = ProcessStreams()
    before = streams.read()
    seed(1234)
    assert streams.read() != before
    assert streams.read() == process_state()
