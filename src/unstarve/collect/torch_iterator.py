"""The private state of torch's iterators that unstarve reads, guarded, in one place."""

from __future__ import annotations

import inspect
import queue
from collections.abc import Callable
from typing import Any

from unstarve.collect.dali_pipeline import length_is_unknown

TAP = "_unstarve_tap"
"""Attribute of an iterator: the `Tap` that records it."""

_MAP_STYLE = 0
"""torch's ``_DatasetKind.Map``."""


def queue_gauge(iterator: Any) -> tuple[Callable[[], int] | None, int]:
    """How to find out the number of batches in the workers' queue.

    A function that returns it, and 0; or a function that returns the number of free places, and the number of
    all places. None and 0 where neither is known: on macOS, or with another version of torch.
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
    """Whether it uses a sampler. An iterable dataset has none; its ranks may agree on a seed instead."""
    return getattr(iterator, "_dataset_kind", None) == _MAP_STYLE


_ASKED = "_IterableDataset_len_called"
"""Attribute of a loader: the length of its iterable dataset when it was last asked for."""


def epoch_length(loader: Any) -> int | None:
    """Batches per epoch; None if unknown. torch warns of a wrong length if the script has asked for it."""
    if length_is_unknown(loader):
        return None
    asked = getattr(loader, _ASKED, None)
    try:
        return len(loader)
    except Exception:  # an endless stream, or the user's own length, which may not be known yet
        return None
    finally:
        if getattr(loader, _ASKED, None) != asked:
            vars(loader)[_ASKED] = asked


def worker_pids(iterator: Any) -> list[int]:
    """Process ids of an iterator's workers; empty when it has none."""
    return [worker.pid for worker in getattr(iterator, "_workers", [])]


def shut_down(iterator: Any, loader: Any) -> None:
    """Stop an iteration early: its workers are gone on return."""
    if inspect.isgenerator(iterator):
        iterator.close()
    elif hasattr(iterator, "_shutdown_workers"):
        iterator._shutdown_workers()
        if getattr(loader, "_iterator", None) is iterator:
            loader._iterator = None  # persistent workers: the next epoch makes new ones
