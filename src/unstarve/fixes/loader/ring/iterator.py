"""torch's own iterator over worker processes, its queues and the workers' way of sending replaced.

Everything else is torch's: order, seeds, prefetching, errors, time-outs, dying and leaving.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data.dataloader import DataLoader, _DatasetKind, _MultiProcessingDataLoaderIter

from unstarve.fixes.loader.ring.bell import Patience
from unstarve.fixes.loader.ring.inbox import Inbox
from unstarve.fixes.loader.ring.pinned import fence
from unstarve.fixes.loader.ring.queue import RingQueue
from unstarve.fixes.loader.ring.worker import Place, run_worker
from unstarve.machine import share_of_cores

_profiling: Callable[[], bool] = getattr(torch.autograd, "_profiler_enabled", lambda: True)


class RingIterator(_MultiProcessingDataLoaderIter):
    """One epoch of a loader, or all of them where its workers are persistent."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._pid = os.getpid()
        self._fence = fence() if loader.pin_memory else None
        self._inbox = Inbox(self._fence)
        context = _Context(loader, self._inbox)
        try:
            super().__init__(_Seen(loader, context))
        finally:
            context.let_workers_go()
        # Traces of a training read the same whoever loads.
        self._profile_name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"

    def __next__(self) -> Any:
        if self._fence is not None:
            self._fence.settle()
        if _profiling() or self._sampler_iter is None or self._dataset_kind == _DatasetKind.Iterable:
            return super().__next__()
        # What it would do, without the note to a profiler that is not there.
        batch = self._next_data()  # type: ignore[no-untyped-call]  # as torch has it
        self._num_yielded += 1
        return batch

    def _shutdown_workers(self) -> None:
        if os.getpid() != self._pid:
            return  # a forked child has inherited the iterator, but the workers are not its own to stop
        super()._shutdown_workers()
        self._inbox.close()


class _Seen:
    """The loader as torch's iterator sees it: with another multiprocessing context."""

    def __init__(self, loader: DataLoader[Any], context: _Context) -> None:
        self._loader = loader
        self.multiprocessing_context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _Context:
    """The user's multiprocessing context, making our queues and our workers."""

    def __init__(self, loader: DataLoader[Any], inbox: Inbox) -> None:
        self._original: Any = loader.multiprocessing_context or torch.multiprocessing
        # Whether a GPU has read a slot is asked one batch after the slot was let go, and known another later.
        self._in_flight = (loader.prefetch_factor or 1) + (2 if inbox.pins else 0)
        self._has_cores = loader.num_workers < share_of_cores()
        self._inbox = inbox
        self._workers_ends: list[socket.socket] = []

    def Queue(self) -> RingQueue:
        queue = RingQueue(ctx=self._original)
        queue.inbox = self._inbox
        if self._has_cores:
            queue.bell.patience = Patience()
        return queue

    def Process(self, *, target: Callable[..., Any], args: tuple[Any, ...] = (), **options: Any) -> Any:
        own, workers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._workers_ends.append(workers)
        place = Place(workers, self._inbox.connect(own), self._in_flight, self._has_cores)
        kwargs = options.pop("kwargs", {})
        return self._original.Process(target=run_worker, args=(place, target, args, kwargs), **options)

    def let_workers_go(self) -> None:
        """Close the workers' ends of the sockets here: they have their own by now."""
        for end in self._workers_ends:
            end.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)
