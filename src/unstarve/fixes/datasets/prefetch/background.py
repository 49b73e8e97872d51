"""What one process has going for one dataset: its threads, and the iterations that use them."""

from __future__ import annotations

import os
import weakref
from typing import Any

from torch.utils.data import get_worker_info

from unstarve.fixes.datasets.prefetch.event_loop import EventLoop
from unstarve.fixes.datasets.prefetch.iteration import Iteration
from unstarve.fixes.datasets.prefetch.order import Order
from unstarve.fixes.datasets.prefetch.pool import Pool
from unstarve.fixes.datasets.prefetch.tasks import Runner
from unstarve.fixes.datasets.prefetch.torch_order import Path, asking_loader, order_of, path_to


class Background:
    """Made in the process that uses it: neither threads nor event loops survive a fork."""

    def __init__(self, num_workers: int) -> None:
        self.process = os.getpid()
        self.why_no_order = ""
        """Why the sampler of the loader that asked last cannot be followed; empty where it can."""
        self._num_workers = num_workers
        self._pool = Pool(num_workers)
        self._loop: EventLoop | None = None
        self._iterations: weakref.WeakKeyDictionary[Order, Iteration] = weakref.WeakKeyDictionary()
        self._followed: weakref.ref[Order] | None = None
        self._guessing = Iteration()

    def runner(self, asynchronous: bool) -> Runner:
        """Return what runs fetches: threads, or an event loop in a thread of its own."""
        if not asynchronous:
            return self._pool
        if self._loop is None:
            self._loop = EventLoop(self._num_workers)
        return self._loop

    def begin(self, order: Order, path: Path | None = None, batches: bool | None = None) -> Iteration:
        """Return the iteration that follows this order."""
        iteration = self._iterations.get(order)
        if iteration is None:
            iteration = self._iterations[order] = Iteration(order, path, batches)
        return iteration

    def follow(self, order: Order) -> None:
        """Take this order for whatever asks next, unless that has an order of its own."""
        self._followed = weakref.ref(order)
        self.begin(order)

    def iteration(self, dataset: Any) -> Iteration:
        """Return the iteration that is asking `dataset` for samples on this thread."""
        if get_worker_info() is not None:
            self.why_no_order = "the sampler is in another process"
            return self._guessing
        iterator, item = asking_loader()
        path = None if iterator is None else path_to(iterator._dataset, dataset)
        if path is not None:
            order, self.why_no_order = order_of(iterator, item)
            if order is not None:
                return self.begin(order, path, iterator._auto_collation)
        followed = None if self._followed is None else self._followed()
        if followed is None:
            return self._guessing
        self.why_no_order = ""
        iteration = self.begin(followed)
        iteration.path = path
        return iteration

    def close(self) -> None:
        """End the threads; takes no lock, so that a finalizer may call it."""
        self._guessing.abandon()
        for iteration in tuple(self._iterations.values()):
            iteration.abandon()
        self._pool.leave()
        if self._loop is not None:
            self._loop.close()
