"""For loaders that tune themselves: a search that asks for what a test wants, and no worker left behind."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import time
from collections.abc import Iterator
from typing import Any

import pytest

from unstarve.model import LoaderSettings
from unstarve.tune import live_search
from unstarve.tune.search_result import SearchResult


class Scripted:
    """Stands in for a search: asks for one setting after the other, for ever."""

    predicted = None
    untried = ()

    def __init__(self, own: LoaderSettings, present: LoaderSettings, bounds: Any, forecast: Any) -> None:
        self.best_so_far = own

    def run(self) -> Any:
        raise NotImplementedError

    def conclude(self) -> SearchResult:
        return SearchResult(self.best_so_far, None, "scripted")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(*settings: tuple[int, int | None]) -> None:
        asked = tuple(LoaderSettings(*one) for one in settings)

        def run(self: Scripted) -> Any:
            for settings in itertools.cycle(asked):
                _ = yield settings

        monkeypatch.setattr(Scripted, "run", run)
        monkeypatch.setattr(live_search, "Search", Scripted)

    return use


@pytest.fixture
def no_workers_left() -> Iterator[None]:
    before = set(multiprocessing.active_children())
    yield
    gc.collect()
    deadline = time.monotonic() + 60
    while set(multiprocessing.active_children()) - before:
        assert time.monotonic() < deadline, "worker processes are left"
        time.sleep(0.01)
