"""torch's own iterator over worker processes, and its worker loop, with our queues and slots put in.

Everything else is torch's: order, seeds, prefetching, errors, timeouts and shutdown.
"""

from __future__ import annotations

import inspect
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import default_collate
from torch.utils.data.dataloader import DataLoader, _DatasetKind, _MultiProcessingDataLoaderIter

from unstarve.fixes.loader.resume.worker_iterators import LoaderWithContext, TrackedWorkers
from unstarve.fixes.loader.resume.worker_notes import NoteTaker, WorkerNotes
from unstarve.fixes.loader.ring.gpu_fence import fence
from unstarve.fixes.loader.ring.ring_queue import RingQueue, SpinWait
from unstarve.fixes.loader.ring.slot_collate import RepeatCollate, SlotCollate
from unstarve.fixes.loader.ring.slot_messages import Inbox, Outbox
from unstarve.fixes.memory.buffers import use_allocator
from unstarve.machine import share_of_cores
from unstarve.stack_levels import uncounted

_profiling: Callable[[], bool] = getattr(torch.autograd, "_profiler_enabled", lambda: True)


class RingIterator(TrackedWorkers, _MultiProcessingDataLoaderIter):
    """One epoch of a loader, or all of them where its workers are persistent."""

    @uncounted
    def __init__(self, loader: DataLoader[Any]) -> None:
        self._pid = os.getpid()
        self._fence = fence() if loader.pin_memory else None
        self._inbox = Inbox(self._fence)
        self.follow(loader)
        context = _Context(loader, self._inbox, self.notes)
        try:
            super().__init__(LoaderWithContext(loader, context))
        finally:
            context.let_workers_go()
        # A profile of the training reads the same with either iterator.
        self._profile_name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"

    @uncounted
    def __next__(self) -> Any:
        if self._fence is not None:
            self._fence.settle()
        try:
            if _profiling() or self._sampler_iter is None or self._dataset_kind == _DatasetKind.Iterable:
                batch = super().__next__()
            else:  # the same as torch's, without the mark for a profiler that is off
                batch = self._next_data()  # type: ignore[no-untyped-call]  # as torch has it
                self._num_yielded += 1
        except StopIteration:
            self.progress.ended = True
            raise
        if self._rcvd_idx == self._send_idx and not self._persistent_workers:
            self._dismiss_workers()
        return batch

    def _dismiss_workers(self) -> None:
        """Let the workers end while training uses the last batch; torch waits for them when asked for more.

        A forked worker has the training process's memory, which the kernel takes a while to take apart.
        """
        self._workers_done_event.set()
        for worker, is_active in enumerate(self._workers_status):
            if is_active:
                self._mark_worker_as_unavailable(worker, shutdown=True)

    def _shutdown_workers(self) -> None:
        if os.getpid() != self._pid:
            return  # a forked child inherits the iterator; the workers belong to its parent
        super()._shutdown_workers()
        self._inbox.close()


class _Context:
    """The user's multiprocessing context, except that queues and workers are ours."""

    def __init__(self, loader: DataLoader[Any], inbox: Inbox, notes: WorkerNotes | None) -> None:
        self._notes = notes
        self._original: Any = loader.multiprocessing_context or torch.multiprocessing
        # The fence marks a released slot one batch later and sees the mark pass one batch after that.
        self._in_flight = (loader.prefetch_factor or 1) + (2 if inbox.pins else 0)
        self._has_cores = loader.num_workers < share_of_cores()
        self._inbox = inbox
        self._workers_ends: list[socket.socket] = []

    def Queue(self) -> RingQueue:
        queue = RingQueue(ctx=self._original)
        queue.inbox = self._inbox
        if self._has_cores:
            queue.bell.spin = SpinWait()
        return queue

    def Process(self, *, target: Callable[..., Any], args: tuple[Any, ...] = (), **options: Any) -> Any:
        own, workers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._workers_ends.append(workers)
        number = self._inbox.connect(own)
        taker = None if self._notes is None else self._notes.for_worker(number)
        place = WorkerSetup(workers, number, self._in_flight, self._has_cores, taker)
        kwargs = options.pop("kwargs", {})
        return self._original.Process(target=run_worker, args=(place, target, args, kwargs), **options)

    def let_workers_go(self) -> None:
        """Close this process's copies of the workers' socket ends, once the workers have their own."""
        for end in self._workers_ends:
            end.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


@dataclass(frozen=True)
class WorkerSetup:
    """What one worker is told about itself.

    `link` is its socket to the training process. Up to `in_flight` batches are on their way at a time,
    besides those the user holds. `has_core`: every worker and the training process have a core to themselves.
    `notes`: it notes its random streams, from which a run can be resumed.
    """

    link: socket.socket
    number: int
    in_flight: int
    has_core: bool
    notes: NoteTaker | None = None


def run_worker(
    place: WorkerSetup, loop: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Run torch's worker `loop` with its own arguments; the result queue sends batches in slots."""
    with place.link:
        bound = inspect.signature(loop).bind(*args, **kwargs)
        given = bound.arguments
        queue: RingQueue = given["data_queue"]
        given["index_queue"].bell.spin = SpinWait() if place.has_core else None
        if queue.inbox is not None:
            queue.inbox.close()  # the training process's: a forked worker inherits it
        outbox = queue.outbox = Outbox(place.link, place.number, place.in_flight)
        use_allocator(outbox.allocate)
        collate = SlotCollate(outbox.allocate)
        if given["collate_fn"] is default_collate:
            given["collate_fn"] = RepeatCollate(collate, outbox.take)
        if place.notes is None:
            loop(*bound.args, **bound.kwargs)
        else:
            place.notes.run(loop, bound.args, bound.kwargs)
