"""Look inside one iterator: at its fetcher when it has no workers, at their queue when it has."""

from __future__ import annotations

from typing import Any

from unstarve.collect.fetching import PROBE, Probe, wrap_fetchers
from unstarve.collect.loader import Tap
from unstarve.collect.receiving import Place, time_receiving, wrap_pinning
from unstarve.collect.recorder import Recorder


def look_inside(iterator: Any, tap: Tap, owner: Recorder) -> None:
    """Time what making and handing over this iterator's batches costs. Called once per iterator."""
    fetcher = getattr(iterator, "_dataset_fetcher", None)
    if fetcher is not None:
        wrap_fetchers()
        tap.probe = fetcher.__dict__[PROBE] = Probe(owner, tap.number)
        return
    queue = getattr(iterator, "_worker_result_queue", None)
    if queue is not None:
        wrap_pinning()
        tap.place = Place(tap.number, 0)
        time_receiving(queue, owner, tap.place, pinned=bool(iterator._pin_memory))
