"""What torch's own iterators know and do not tell: their private state, guarded, in one place."""

from __future__ import annotations

from typing import Any, Protocol

_UNKNOWN = -1


class KnowsLastTask(Protocol):
    """A tap that is told which task came out of the workers' queue."""

    last_task: int
    _index: int


def ready_batches(iterator: Any) -> int:
    """Batches that lie ready: in the queue, or taken out of it and held back for their turn; −1 unknown."""
    try:
        held = len(iterator._task_info) - iterator._tasks_outstanding
        return int(iterator._data_queue.qsize() + held)
    except (AttributeError, NotImplementedError, OSError):
        return _UNKNOWN  # no workers, macOS, or another torch


def task_of(iterator: Any, tap: KnowsLastTask) -> int:
    """torch's number of the batch that was just delivered; −1 unknown."""
    try:
        if iterator._num_workers == 0:
            return tap._index
        return int(iterator._rcvd_idx) - 1 if iterator._in_order else tap.last_task
    except AttributeError:
        return _UNKNOWN


def worker_pids(iterator: Any) -> list[int]:
    """The workers of an iterator; empty when it has none."""
    return [worker.pid for worker in getattr(iterator, "_workers", [])]
