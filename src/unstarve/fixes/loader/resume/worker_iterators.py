"""torch's iterators, as they are, except that they count batches and carry their workers' states."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data.dataloader import (
    DataLoader,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

from unstarve.fixes.loader.resume.progress import (
    UNTRACKED,
    CountsBatches,
    Progress,
    Tracked,
    progress_of,
)
from unstarve.fixes.loader.resume.worker_notes import NoteTaker, WorkerNotes, can_note
from unstarve.marks import PullableIndices
from unstarve.stack_levels import uncounted


class InProcessIterator(CountsBatches, _SingleProcessDataLoaderIter, PullableIndices):
    """torch's iterator without workers."""

    @uncounted
    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        self._profile_name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


if TYPE_CHECKING:
    _Workers = _MultiProcessingDataLoaderIter
else:
    _Workers = object


class TrackedWorkers(Tracked, _Workers):
    """Mixin for torch's iterator over worker processes; in front of it among the bases."""

    notes: WorkerNotes | None = None
    _first_worker = 0

    def follow(self, loader: Any) -> None:
        """Begin to count; call it before torch starts the workers."""
        self.progress = progress_of(loader)
        if self.progress is UNTRACKED:
            return
        self._first_worker = self.progress.next_worker
        self.notes = _notes_for(loader, self.progress)

    @property
    def _worker_queue_idx_cycle(self) -> itertools.cycle[int]:
        return self._turns

    @_worker_queue_idx_cycle.setter
    def _worker_queue_idx_cycle(self, turns: itertools.cycle[int]) -> None:
        """An epoch begins with the first worker; the rest of one begins with the worker whose turn it is."""
        for _ in range(self._first_worker):
            next(turns)
        self._first_worker = 0
        self._turns = turns

    @uncounted
    def _process_data(self, data: Any, worker: int) -> Any:
        progress = self.progress
        progress.given += 1
        progress.tasks = self._rcvd_idx
        progress.next_worker = (worker + 1) % self._num_workers
        return super()._process_data(data, worker)  # type: ignore[no-untyped-call]  # as torch has it


class StockWorkers(TrackedWorkers, _MultiProcessingDataLoaderIter):
    """torch's iterator over worker processes."""

    @uncounted
    def __init__(self, loader: DataLoader[Any]) -> None:
        self.follow(loader)
        original = loader.multiprocessing_context or torch.multiprocessing
        super().__init__(LoaderWithContext(loader, _NotingContext(original, self.notes)))
        self._profile_name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"

    @uncounted
    def __next__(self) -> Any:
        try:
            return super().__next__()
        except StopIteration:
            self.progress.ended = True
            raise


def _notes_for(loader: Any, progress: Progress) -> WorkerNotes | None:
    if not can_note():
        return None
    return WorkerNotes(loader.num_workers, loader.prefetch_factor or 1, progress.loaded)


class LoaderWithContext:
    """A loader with its multiprocessing context replaced: what torch's iterator is given."""

    def __init__(self, loader: DataLoader[Any], context: Any) -> None:
        self._loader = loader
        self.multiprocessing_context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _NotingContext:
    """The user's multiprocessing context, except that workers take notes."""

    def __init__(self, original: Any, notes: WorkerNotes | None) -> None:
        self._original = original
        self._notes = notes
        self._started = 0

    def Process(self, *, target: Callable[..., Any], args: tuple[Any, ...] = (), **options: Any) -> Any:
        if self._notes is None:
            return self._original.Process(target=target, args=args, **options)
        taker = self._notes.for_worker(self._started)
        self._started += 1
        return self._original.Process(target=run_noted, args=(taker, target, args), **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def run_noted(taker: NoteTaker, loop: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Run torch's worker loop in a worker process."""
    taker.run(loop, args, {})
