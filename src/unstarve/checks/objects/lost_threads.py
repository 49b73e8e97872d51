"""Threads that a dataset relies on and that no forked worker has."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import Any

from unstarve import words
from unstarve.checks.objects.attributes import Place, stored
from unstarve.checks.objects.loader_parts import (
    held_by_samples,
    is_forked,
    is_used,
    may_differ_in_workers,
    report,
)
from unstarve.checks.objects.sample_code import sample_code
from unstarve.checks.objects.subject import Subject
from unstarve.model.finding import Finding

_RESTARTING = frozenset({"is_alive", "start", "Thread", "ThreadPool", "ThreadPoolExecutor"})
_WAITED_FOR = (queue.Queue, queue.SimpleQueue, threading.Condition, threading.Event)


def fork_after_threads(subject: Subject) -> Iterator[Finding]:
    """A pool or a thread of the dataset's that runs before the fork: in a worker nothing answers it.

    Other threads of the process do no harm by being there: progress bars and loggers have them, too.
    """
    loader = subject.loader
    if not is_forked(loader):
        return
    for place in held_by_samples(subject):
        seen = _threads(place)
        if seen is not None and is_used(place, subject) and not may_differ_in_workers(place, subject):
            yield report(
                subject,
                "fork-after-threads",
                f"{place.path} is {seen}. A forked worker has no such thread and waits for ever.",
                f"Start {place.path} on first use inside the worker, not in __init__.",
                harm=1.0,
            )


def _threads(place: Place) -> str | None:
    """What runs there; None where nothing runs, or where samples start it again."""
    value, owner = place.value, place.owner
    code = sample_code(owner).names if owner is not None else set[str]()
    if code & _RESTARTING:
        return None
    if isinstance(value, ThreadPoolExecutor):
        alive = [thread for thread in value._threads if thread.is_alive()]
        # It starts another thread only if it counts none as idle, and has fewer than it may have.
        starts_none = len(alive) >= value._max_workers or value._idle_semaphore._value > 0
        return f"a ThreadPoolExecutor with {_count(len(alive))}" if alive and starts_none else None
    if isinstance(value, ThreadPool):
        return "a ThreadPool that runs"
    is_producer = isinstance(value, threading.Thread) and value.is_alive() and _is_waited_for(owner, code)
    return "a thread that runs" if is_producer else None


def _is_waited_for(owner: Any, used: set[str]) -> bool:
    """Whether samples wait for a queue or an event next to the thread."""
    parts = stored(owner) if owner is not None else {}
    return any(isinstance(part, _WAITED_FOR) and name in used for name, part in parts.items())


def _count(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{words.mean_count(threads)} threads"
