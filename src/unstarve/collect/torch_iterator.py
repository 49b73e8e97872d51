"""What torch's own iterators know and do not tell: their private state, guarded, in one place."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

TAP = "_unstarve_tap"
"""Attribute of an iterator: the `Tap` that records it."""

_MAP_STYLE = 0
"""torch's ``_DatasetKind.Map``."""


def queue_gauge(iterator: Any) -> tuple[Callable[[], int] | None, int]:
    """What tells how much lies in the workers' queue: a function and 0; or, with a number that is not 0, a
    function that tells what is left of that. None where nothing tells: macOS, or another torch.
    """
    ready = getattr(iterator, "_data_queue", None)
    if isinstance(ready, queue.Queue):  # filled by the pin-memory thread
        return ready.queue.__len__, 0
    try:
        value = ready._sem._semlock._get_value  # type: ignore[union-attr]  # whatever it lacks is caught below
        value()
        return (value, int(ready._maxsize)) if hasattr(iterator, "_task_info") else (None, 0)  # type: ignore[union-attr]  # as above
    except (AttributeError, NotImplementedError, OSError):
        return None, 0


def draws_samples(iterator: Any) -> bool:
    """Whether there is a sampler to ask; a stream has none, and ranks may first agree on its random seed."""
    return getattr(iterator, "_dataset_kind", None) == _MAP_STYLE


def worker_pids(iterator: Any) -> list[int]:
    """The workers of an iterator; empty when it has none."""
    return [worker.pid for worker in getattr(iterator, "_workers", [])]
