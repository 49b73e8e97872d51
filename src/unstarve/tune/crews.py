"""Crews: iterators that make an epoch's batches under one setting and can be paused, resumed and deepened.

A crew is one of torch's iterators, the ring's, a gatherer of rows, or threads (`thread_crews`). It takes its
indices from the epoch's `IndexStream`, so that another crew can go on where it stopped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader
from torch.utils.data._utils import signal_handling
from torch.utils.data.dataloader import (
    _DatasetKind,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

from unstarve.fixes.loader.engines.gathered_batches import GatherRecipe, empty_like_rows
from unstarve.fixes.loader.engines.memory_engines import rows_in
from unstarve.fixes.loader.ring.ring_iterator import RingIterator
from unstarve.model import LoaderSettings
from unstarve.model.parts import GATHER, RING
from unstarve.tune.index_stream import IndexStream, LoaderView
from unstarve.tune.thread_crews import DrawnCrew, Pausable, ReaderCrew, make_thread_crew


class InProcessCrew(_SingleProcessDataLoaderIter):
    """No workers: a batch is made when it is asked for, and nothing is prefetched."""

    pids: tuple[int, ...] = ()
    pending = 0
    ready = 0
    lost_workers = False

    def __init__(
        self, loader: DataLoader[Any], stream: IndexStream, settings: LoaderSettings, seed: int
    ) -> None:
        self.settings = settings
        self.stream = stream
        self._taken: list[Any] = []
        super().__init__(LoaderView(loader, stream, settings))
        self._profile_name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"

    def ignore_worker_deaths(self) -> None:
        """There are no workers."""

    def set_depth(self, depth: int | None) -> None:
        """Nothing is prefetched."""

    def pause(self) -> None:
        """Nothing is prefetched."""

    def resume(self, loader: DataLoader[Any], stream: IndexStream, settings: LoaderSettings) -> None:
        """Make batches of this stream from now on."""
        self.stream = stream
        self._sampler_iter = stream

    def undelivered(self) -> list[Any]:
        """Return the indices of the batch that raised an exception."""
        return self._taken

    def close(self) -> None:
        """There is nothing to stop."""

    def _next_index(self) -> Any:
        indices = super()._next_index()  # type: ignore[no-untyped-call]  # untyped in torch
        self._taken = [indices]
        return indices


class GatheringCrew(InProcessCrew):
    """No workers and no samples: a batch is one copy of its rows, which are in memory."""

    def __init__(
        self, loader: DataLoader[Any], stream: IndexStream, settings: LoaderSettings, seed: int
    ) -> None:
        super().__init__(loader, stream, settings, seed)
        table = rows_in(loader)
        if isinstance(table, str):
            raise ValueError(table)
        recipe = GatherRecipe(table, empty_like_rows, self._dataset_fetcher.fetch)
        self._dataset_fetcher = _Gatherer(recipe)


@dataclass(frozen=True)
class _Gatherer:
    """Stands in for what torch makes a batch with."""

    recipe: GatherRecipe

    def fetch(self, indices: Any) -> Any:
        return self.recipe.batch(indices)


if TYPE_CHECKING:
    _Workers = _MultiProcessingDataLoaderIter
else:
    _Workers = object


class SteeredWorkers(Pausable, _Workers):
    """Mixin for an iterator of torch's kind with worker processes."""

    def __init__(
        self, loader: DataLoader[Any], stream: IndexStream, settings: LoaderSettings, seed: int
    ) -> None:
        self.settings = settings
        self.stream = stream
        self._seed = seed
        self._paused = False
        self._sent: dict[int, Any] = {}
        """Indices by task number: of all pending tasks, and some older ones."""
        super().__init__(LoaderView(loader, stream, settings))
        self._profile_name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"

    @property
    def _base_seed(self) -> int:
        return self._seed

    @_base_seed.setter
    def _base_seed(self, drawn: int) -> None:
        """Ignore torch's own draw, which came from the view's generator."""

    @property
    def pids(self) -> tuple[int, ...]:
        """Its worker processes."""
        return tuple(worker.pid for worker in self._workers if worker.pid is not None)

    @property
    def pending(self) -> int:
        """Batches whose indices were taken but that were not delivered yet."""
        return len(self._task_info)

    @property
    def ready(self) -> int:
        """At most this many of them are finished."""
        try:
            return min(self.pending, self._data_queue.qsize())
        except NotImplementedError:  # macOS
            return self.pending

    @property
    def lost_workers(self) -> bool:
        """A worker has died."""
        return any(not worker.is_alive() for worker in self._workers)

    def ignore_worker_deaths(self) -> None:
        """Report the death of a worker only as an exception of ``next()``.

        torch raises it wherever the training process happens to be, and nobody asked for these workers.
        """
        signal_handling._remove_worker_pids(id(self))  # type: ignore[attr-defined]  # from torch's C side
        self._worker_pids_set = False

    def set_depth(self, depth: int | None) -> None:
        """Keep this many batches per worker in flight from now on."""
        assert depth is not None
        self.settings = replace(self.settings, prefetch_factor=depth)
        self._prefetch_factor = depth
        self._top_up()

    def undelivered(self) -> list[Any]:
        """Return the indices of pending batches in order; of all batches if none was delivered yet."""
        tasks = self._task_info if self._num_yielded else self._sent
        return [self._sent[task] for task in sorted(tasks)]

    def close(self) -> None:
        """Stop the workers and drop their batches."""
        self._shutdown_workers()

    # --- called by torch ---

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self._sent.clear()
        assert self.settings.prefetch_factor is not None
        self._prefetch_factor = self.settings.prefetch_factor  # the view allows for more
        super()._reset(loader, first_iter)

    def _next_index(self) -> Any:
        if self._paused:
            raise StopIteration
        indices = super()._next_index()  # type: ignore[no-untyped-call]  # untyped in torch
        self._sent[self._send_idx] = indices
        if len(self._sent) > 4 * len(self._task_info) + 64:
            self._sent = {task: self._sent[task] for task in (*self._task_info, self._send_idx)}
        return indices

    def _try_put_index(self) -> None:
        if self._dataset_kind == _DatasetKind.Map and self.pending >= self._max_pending:
            return  # the depth was reduced
        super()._try_put_index()

    @property
    def _max_pending(self) -> int:
        return int(self._num_workers * self._prefetch_factor)

    def _top_up(self) -> None:
        while self.pending < self._max_pending:
            sent = self._send_idx
            self._try_put_index()
            if self._send_idx == sent:
                return  # the epoch has no more


class StockCrew(SteeredWorkers, _MultiProcessingDataLoaderIter):
    """torch's own workers."""


class RingCrew(SteeredWorkers, RingIterator):
    """Workers that hand batches over in reused shared memory."""

    def _dismiss_workers(self) -> None:
        """Keep them: a crew that has nothing to do may be paused."""


Crew = InProcessCrew | StockCrew | RingCrew | DrawnCrew | ReaderCrew


def make_crew(loader: Any, stream: IndexStream, settings: LoaderSettings, seed: int, *, ring: bool) -> Crew:
    """Start a crew; it takes the first of its indices at once."""
    if settings.threads:
        return make_thread_crew(loader, stream, settings, seed)
    if settings.num_workers == 0:
        return (GatheringCrew if settings.part == GATHER else InProcessCrew)(loader, stream, settings, seed)
    return (RingCrew if ring or settings.part == RING else StockCrew)(loader, stream, settings, seed)
