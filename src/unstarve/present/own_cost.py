"""The line about unstarve's own cost."""

from __future__ import annotations

from unstarve.model import Overhead
from unstarve.words import duration, percent


def own_cost(overhead: Overhead) -> str | None:
    """One sentence without a full stop, at most 80 columns; None when nothing was measured."""
    if overhead.us_per_step is None or overhead.share is None:
        return None
    step = duration(overhead.us_per_step / 1e6)
    line = f"unstarve used {percent(overhead.share)} of a core ({step} a step)"
    if overhead.worker_us_per_batch is None:
        return line
    return f"{line} and {duration(overhead.worker_us_per_batch / 1e6)} a batch in workers"
