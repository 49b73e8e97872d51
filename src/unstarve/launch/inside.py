"""Look inside one iterator: at its fetcher when it has no workers, at their queue when it has."""

from __future__ import annotations

from typing import Any

from unstarve.collect.fetching import PROBE, Probe, wrap_fetchers
from unstarve.collect.receiving import time_receiving, wrap_pinning
from unstarve.collect.recorder import Recorder
from unstarve.collect.tap import Tap
from unstarve.collect.torch_iterator import queue_gauge
from unstarve.launch.attach import wrap_try_get_data


def look_inside(iterator: Any, tap: Tap, owner: Recorder) -> None:
    """Time what making and handing over this iterator's batches costs. Called once per iterator."""
    wait = tap.wait
    fetcher = getattr(iterator, "_dataset_fetcher", None)
    if fetcher is not None:
        wrap_fetchers()
        tap.probe = fetcher.__dict__[PROBE] = Probe(owner, tap.number)
        wait.fetch_by(tap.probe.work)
        return
    queue = getattr(iterator, "_worker_result_queue", None)
    if queue is not None:
        wrap_pinning()
        wait.has_workers = hasattr(iterator, "_rcvd_idx")
        wait.in_order = bool(getattr(iterator, "_in_order", False))
        if not wait.in_order:
            wrap_try_get_data(type(iterator))
        wait.queue_value, wait.queue_room = queue_gauge(iterator)
        wait.seen_inside = True
        tap.receiving = time_receiving(queue, owner, tap.number, pinned=bool(iterator._pin_memory))
