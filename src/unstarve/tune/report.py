"""A window as a trial: what is told of it."""

from __future__ import annotations

import psutil

from unstarve.model import Trial
from unstarve.tune.room import Room
from unstarve.tune.window import Window

_WIDEST = 0.9
"""Of the time per step: an interval is not told to be wider than this."""


def trial_of(window: Window, samples: float, room: Room | None) -> Trial:
    """`samples` per batch."""
    period_s = max(window.period_s, 1e-9)
    error_s = min(window.error_s, _WIDEST * period_s)
    settings = window.settings
    rss = None
    if settings.num_workers == 0 or settings.images:
        rss = psutil.Process().memory_info().rss
    elif room is not None and room.worker_bytes is not None:
        rss = psutil.Process().memory_info().rss + settings.num_workers * room.worker_bytes
    return Trial(
        settings=settings,
        kind="measured",
        steps=window.steps,
        seconds=window.seconds,
        samples_per_s=samples / period_s,
        low=samples / (period_s + error_s),
        high=samples / (period_s - error_s),
        wait_share=window.wait_share,
        rss_bytes=rss,
        shm_bytes=None if room is None else room.under_way_bytes(settings),
    )
