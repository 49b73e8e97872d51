"""torch's iterators, steered: indices from a stream, more or fewer batches under way, held back at will."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader
from torch.utils.data._utils import signal_handling
from torch.utils.data.dataloader import (
    _DatasetKind,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

from unstarve.fixes.loader.ring.ring_iterator import RingIterator
from unstarve.model import LoaderSettings
from unstarve.tune.images import ImageCrew
from unstarve.tune.seen import Seen
from unstarve.tune.stream import Stream


class Alone(_SingleProcessDataLoaderIter):
    """No workers: a batch is made when it is asked for."""

    pids: tuple[int, ...] = ()
    pending = 0
    ready = 0
    lost_workers = False

    def __init__(self, loader: DataLoader[Any], stream: Stream, settings: LoaderSettings, seed: int) -> None:
        self.settings = settings
        self.stream = stream
        self._taken: list[Any] = []
        super().__init__(Seen(loader, stream, settings))
        self._profile_name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"

    def die_quietly(self) -> None:
        """Nobody can die."""

    def set_depth(self, depth: int | None) -> None:
        """There is nothing ahead."""

    def hold(self) -> None:
        """There is nothing ahead."""

    def go_on(self, loader: DataLoader[Any], stream: Stream, settings: LoaderSettings) -> None:
        """Make batches of this stream from now on."""
        self.stream = stream
        self._sampler_iter = stream

    def undelivered(self) -> list[Any]:
        """Return what could not be made, after an exception; nothing is taken ahead."""
        return self._taken

    def close(self) -> None:
        """Nobody is to be sent away."""

    def _next_index(self) -> Any:
        indices = super()._next_index()  # type: ignore[no-untyped-call]  # as torch has it
        self._taken = [indices]
        return indices


if TYPE_CHECKING:
    _Workers = _MultiProcessingDataLoaderIter
else:
    _Workers = object


class Steered(_Workers):
    """Mixed into an iterator of torch's kind that has workers."""

    def __init__(self, loader: DataLoader[Any], stream: Stream, settings: LoaderSettings, seed: int) -> None:
        self.settings = settings
        self.stream = stream
        self._seed = seed
        self._held = False
        self._handed: dict[int, Any] = {}
        super().__init__(Seen(loader, stream, settings))
        self._profile_name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"

    @property
    def _base_seed(self) -> int:
        return self._seed

    @_base_seed.setter
    def _base_seed(self, drawn: int) -> None:
        """torch's own draw, which was made for nobody."""

    @property
    def pids(self) -> tuple[int, ...]:
        """Its worker processes."""
        return tuple(worker.pid for worker in self._workers if worker.pid is not None)

    @property
    def pending(self) -> int:
        """Batches whose indices were taken and that were not handed out yet."""
        return len(self._task_info)

    @property
    def ready(self) -> int:
        """How many of them wait to be handed out, at most."""
        try:
            return min(self.pending, self._data_queue.qsize())
        except NotImplementedError:  # macOS
            return self.pending

    @property
    def lost_workers(self) -> bool:
        """A worker has died."""
        return any(not worker.is_alive() for worker in self._workers)

    def die_quietly(self) -> None:
        """Let the death of a worker be an exception of ``next()`` alone.

        torch raises it wherever the training process happens to be; but these workers nobody has asked for.
        """
        signal_handling._remove_worker_pids(id(self))  # type: ignore[attr-defined]  # from torch's C side
        self._worker_pids_set = False

    def set_depth(self, depth: int | None) -> None:
        """Let so many batches per worker be under way from now on."""
        assert depth is not None
        self.settings = LoaderSettings(self.settings.num_workers, depth)
        self._prefetch_factor = depth
        self._top_up()

    def hold(self) -> None:
        """Take no more indices; what is under way is still to be handed out."""
        self._held = True

    def go_on(self, loader: DataLoader[Any], stream: Stream, settings: LoaderSettings) -> None:
        """Take indices again; of another stream, where another epoch has begun."""
        self._held = False
        if stream is self.stream:
            self.set_depth(settings.prefetch_factor)
            return
        self.settings = settings
        self.stream = stream
        self._index_sampler = stream
        self._reset(loader)

    def undelivered(self) -> list[Any]:
        """Return the indices of what is pending, in order; of all, where not even the first could be made."""
        tasks = self._task_info if self._num_yielded else self._handed
        return [self._handed[task] for task in sorted(tasks)]

    def close(self) -> None:
        """Send the workers away, and drop what they have made."""
        self._shutdown_workers()

    # --- what torch calls ---

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self._handed.clear()
        assert self.settings.prefetch_factor is not None
        self._prefetch_factor = self.settings.prefetch_factor  # the loader it has seen allows for more
        super()._reset(loader, first_iter)

    def _next_index(self) -> Any:
        if self._held:
            raise StopIteration
        indices = super()._next_index()  # type: ignore[no-untyped-call]  # as torch has it
        self._handed[self._send_idx] = indices
        if len(self._handed) > 4 * len(self._task_info) + 64:
            self._handed = {task: self._handed[task] for task in (*self._task_info, self._send_idx)}
        return indices

    def _try_put_index(self) -> None:
        if self._dataset_kind == _DatasetKind.Map and self.pending >= self._room:
            return  # it is less deep than it was
        super()._try_put_index()

    @property
    def _room(self) -> int:
        return int(self._num_workers * self._prefetch_factor)

    def _top_up(self) -> None:
        while self.pending < self._room:
            sent = self._send_idx
            self._try_put_index()
            if self._send_idx == sent:
                return  # the epoch has no more


class StockCrew(Steered, _MultiProcessingDataLoaderIter):
    """Workers as torch has them."""


class RingCrew(Steered, RingIterator):
    """Workers that hand over in reused shared memory."""


Crew = Alone | StockCrew | RingCrew | ImageCrew


def make_crew(
    loader: DataLoader[Any], stream: Stream, settings: LoaderSettings, seed: int, *, ring: bool
) -> Crew:
    """Start a crew; it takes the first of its indices at once."""
    if settings.images:
        return ImageCrew(loader, stream, settings, seed)
    if settings.num_workers == 0:
        return Alone(loader, stream, settings, seed)
    return (RingCrew if ring else StockCrew)(loader, stream, settings, seed)
