"""What is measured of the settings that a search asks for."""

from __future__ import annotations

import time

import pytest
import torch

from unstarve.model import LoaderSettings
from unstarve.tune import live_search
from unstarve.tune.bounds import WorkerLimits
from unstarve.tune.index_stream import IndexStream
from unstarve.tune.live_search import WARM_UP, LiveSearch, Options, Past
from unstarve.tune.step_window import StepWindow
from unstarve.tune.tunability import Tunability
from unstarve.tune.window_forecast import BatchFacts


def test_what_the_training_process_does_once_is_not_measured_where_it_has_no_workers() -> None:
    own = LoaderSettings(0)
    measured = LiveSearch(own, own, WorkerLimits(2, 16), Tunability(), Options(), set(), uses_ring=False)
    measured.start_crew(own, (), 0, 0.0)
    now, complete, batches = 0.0, False, 0
    while not complete:
        took_s = 0.2 if batches < WARM_UP else 0.001
        complete = measured.add(now + 0.002, now + 0.002 + took_s, None, IndexStream(iter(())))
        now += 0.002 + took_s
        batches += 1
    assert measured.trials
    assert round(1 / measured.trials[0].samples_per_s, 6) == 0.003


def searching(past: Past) -> LiveSearch:
    own = LoaderSettings(0)
    return LiveSearch(
        own, own, WorkerLimits(2, 16), Tunability(), Options(past=past), set(), uses_ring=False, epoch=70
    )


def until_measured(live: LiveSearch) -> None:
    """Training waits 40 ms for each batch of 8 MB, all of it asleep."""
    now_s, batch = time.perf_counter(), torch.zeros(2_000_000)
    live.begin_epoch(70, 4, restarts=True)
    live.start_crew(live.wanted, (), 0, 0.0)
    while not live.add(now_s, now_s + 0.04, batch, IndexStream(iter(()))):
        now_s += 0.041


def test_a_run_goes_on_with_what_the_runs_before_it_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[BatchFacts] = []
    monkeypatch.setattr(live_search, "forecast_from", lambda window, cores, facts: known.append(facts))
    past = Past()
    for runs in range(3):
        live = searching(past)
        assert [trial.settings for trial in live.trials] == [window.settings for window, _ in past.windows]
        assert len(live.trials) == runs
        until_measured(live)
        assert searching(past).wanted == live.wanted
    assert set(known) == {BatchFacts(nbytes=8_000_000, tensors=1, epoch=70)}


def test_a_cache_that_no_run_was_long_enough_to_fill_is_not_begun_again() -> None:
    past = Past()
    assert past.why_no_cache() is None
    assert past.why_no_cache() == "training ended before an epoch had filled it"
    past.windows.append((StepWindow(LoaderSettings(0, part="cached"), (), 0.0), 1.0))
    assert past.why_no_cache() is None
