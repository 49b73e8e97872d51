"""Follow an iterator of torch or DALI: put a `Tap` on it and look at what makes its batches."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from unstarve.collect.dali_pipeline import THREADS, pipelines
from unstarve.collect.device.wait_marks import Mark
from unstarve.collect.fetching import PROBE, FetchProbe
from unstarve.collect.helper_threads import NamedThreads
from unstarve.collect.loader_origin import creation
from unstarve.collect.receiving import time_receiving
from unstarve.collect.recorder import Recorder, recorder
from unstarve.collect.tap import Tap
from unstarve.collect.torch_iterator import TAP, queue_gauge
from unstarve.launch.image_facts import image_facts
from unstarve.marks import SITE


def ask_device() -> Mark | None:
    """A wait begins: its mark on the device; None where there is no device or nothing is recorded."""
    owner = recorder()
    return None if owner is None or owner.device is None or not owner.active else owner.device.ask()


def words_of_page() -> Any:
    """The words of this process's page (`collect.stuck.state_page`); None when nothing is recorded."""
    owner = recorder()
    return None if owner is None or not owner.active else owner.page.words


def tap_on(iterator: Any, loader: Any) -> Tap | None:
    """The tap on this iterator, made on first use; None when nothing is recorded."""
    owner = recorder()
    if owner is None or not owner.active:
        return None
    tap: Tap | None = iterator.__dict__.get(TAP)
    if tap is None or not tap.is_of(owner):
        # A loader that was created before unstarve attached is known by where it was first iterated.
        site = loader.__dict__.get(SITE) or loader.__dict__.setdefault(SITE, tuple(creation(loader).origin()))
        number = owner.loader_number(loader, type(loader).__name__, site, None, image_facts)
        pipes = pipelines(loader)
        collated = pipes is not None or getattr(loader, "batch_sampler", None) is not None
        full = getattr(loader, "batch_size", None)
        is_parted = pipes is not None and len(pipes) > 1
        tap = Tap(owner, number, full, collated=collated, is_parted=is_parted)
        iterator.__dict__[TAP] = tap
        _look_inside(iterator, tap, owner)
    return tap


def _look_inside(iterator: Any, tap: Tap, owner: Recorder) -> None:
    """Time what it costs to make this iterator's batches and to hand them over."""
    wait = tap.wait
    fetcher = getattr(iterator, "_dataset_fetcher", None)
    if fetcher is not None:
        tap.probe = fetcher.__dict__[PROBE] = FetchProbe(owner, tap.number)
        wait.fetch_by(tap.probe.work)
        return
    if pipelines(iterator) is not None:
        tap.probe = FetchProbe(owner, tap.number, NamedThreads(THREADS))
        wait.fetch_by(tap.probe.work)
        return
    queue = getattr(iterator, "_worker_result_queue", None)
    if queue is not None:
        wait.has_workers = hasattr(iterator, "_rcvd_idx")
        wait.in_order = bool(getattr(iterator, "_in_order", False))
        if not wait.in_order and hasattr(iterator, "_try_get_data"):
            iterator._try_get_data = _noting_task(iterator, tap)
        wait.queue_value, wait.queue_room = queue_gauge(iterator)
        wait.seen_inside = True
        tap.receiving = time_receiving(queue, owner, tap.number, pinned=bool(iterator._pin_memory))


def _noting_task(iterator: Any, tap: Tap) -> Callable[..., Any]:
    """``_try_get_data`` that tells the tap which task it took out of the workers' queue.

    Batches that come out of order are not numbered anywhere else.
    """
    original = type(iterator)._try_get_data
    # No reference from the iterator to itself: its workers must end when its user lets go of it.
    iterator_ref = weakref.ref(iterator)

    @functools.wraps(original)
    def _try_get_data(*args: Any, **kwargs: Any) -> Any:
        result = original(iterator_ref(), *args, **kwargs)
        if result[0] and type(result[1][0]) is int:
            tap.wait.last_task = result[1][0]
        return result

    return _try_get_data
