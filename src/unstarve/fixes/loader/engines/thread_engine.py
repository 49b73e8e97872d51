"""The `threads` engine: threads of the training process read ahead, for datasets that read without the GIL.

No process is started and nothing is handed over between processes. There are `num_workers` threads; without
workers the pace of the training loop decides how far ahead a few threads read, or that the loop's own thread
reads. The loop's own thread asks the sampler, at the moments at which torch would. A dataset that draws
random numbers draws them as in torch's workers: each thread makes the batches of one worker, with a generator
of that worker's seed.
"""

from __future__ import annotations

import copy
import functools
import math
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch.utils.data import DataLoader, IterableDataset, Subset, default_collate
from torch.utils.data import dataloader as torch_loader
from torch.utils.data._utils import pin_memory as torch_pin

from unstarve.fixes.loader.engines.index_order import settled_batches
from unstarve.fixes.loader.engines.read_ahead import MANY, THREADS, BatchThreads, ReadAheadPace
from unstarve.fixes.loader.engines.torch_epoch import LoaderWithoutDraw
from unstarve.fixes.loader.resume.progress import UNTRACKED, CountsBatches, Note, Progress, progress_of
from unstarve.fixes.loader.resume.random_state import set_torch_state, torch_state
from unstarve.fixes.memory.buffers import Recycled, use_allocator_in_thread
from unstarve.fixes.samples.random_streams import RandomStream, generator_here, use_stream_in_thread
from unstarve.stack_levels import uncounted

STAND_IN = "_unstarve_stand_in"
"""Attribute of a loader: an object that makes batches of the same samples in place of its dataset."""

_paces: weakref.WeakKeyDictionary[DataLoader[Any], ReadAheadPace] = weakref.WeakKeyDictionary()
"""The pace of earlier epochs, for loaders without workers."""

_memories: weakref.WeakKeyDictionary[Any, Recycled] = weakref.WeakKeyDictionary()
"""The batch memory of loaders: an epoch starts with the memory of the one before."""


@runtime_checkable
class BatchingTransform(Protocol):
    """A transform that can make whole batches for the dataset that it belongs to, as `DecodeCrop` can."""

    def batch_reader_for(self, dataset: Any) -> Any:
        """Return an object with the `read_batch` and `releases_gil` that the dataset lacks; None: cannot."""


def plan_threads(loader: DataLoader[Any]) -> Callable[[], Iterator[Any]] | str:
    """Return how to iterate over batches made by threads, or why threads cannot or should not make them."""
    return why_no_threads(loader) or functools.partial(iterate, loader)


def why_no_threads(loader: DataLoader[Any]) -> str | None:
    """Say why threads cannot make this loader's batches, or not as fast as processes; None if they can."""
    if isinstance(loader.dataset, IterableDataset):
        return "an IterableDataset determines the order of its samples itself"
    if loader.batch_sampler is None:
        return "batch_size=None asks for single samples"
    if loader.collate_fn is not default_collate:
        return "collate_fn is Python code, which would hold the GIL"
    if loader.num_workers > 0 and loader.worker_init_fn is not None:
        return "worker_init_fn must run in worker processes"
    if loader.num_workers == 0 and loader.timeout != 0:
        return "torch refuses a timeout without workers"
    if loader.num_workers == 0 and settled_batches(loader.batch_sampler) == 0:
        return "without workers torch asks this sampler batch by batch; reading ahead would ask it earlier"
    if reader_of(source_of(loader)) is None:
        return "the dataset has no read_batch that releases the GIL"
    if loader.num_workers == 0 and draws_of(source_of(loader)):
        return "without workers torch draws random numbers in the training thread, batch by batch"
    return None


def why_threads(loader: DataLoader[Any]) -> str:
    """Say what this engine gains."""
    count = loader.num_workers or THREADS
    return f"the dataset reads without the GIL: {count} thread{'s' if count > 1 else ''} read ahead"


@uncounted
def iterate(loader: DataLoader[Any]) -> Iterator[Any]:
    """Return an iterator over one epoch. As in torch, a loader with persistent workers keeps one for all."""
    if not loader.persistent_workers or loader.num_workers == 0:
        return ThreadIterator(loader)
    before = loader._iterator
    if isinstance(before, ThreadIterator):
        before._reset(loader)
        return before
    begun = ThreadIterator(loader if before is None else LoaderWithoutDraw(loader))
    loader._iterator = begun
    return begun


def source_of(loader: Any) -> Any:
    """Return the source of the loader's batches: its dataset, or the object that stands in for it."""
    return getattr(loader, STAND_IN, loader.dataset)


def reader_of(dataset: Any) -> Callable[[Any], Any] | None:
    """Return the function that makes batches without the GIL, also for a Subset; None if there is none."""
    if type(dataset) is Subset:
        inner = reader_of(dataset.dataset)
        return None if inner is None else functools.partial(_read_subset, inner, dataset.indices)
    reader = _batch_reader(dataset)
    read: Callable[[Any], Any] | None = getattr(reader, "read_batch", None)
    return read if getattr(reader, "releases_gil", False) else None


def draws_of(dataset: Any) -> bool:
    """Whether making a batch draws random numbers (`random_streams.generator_here`), also for a Subset."""
    if type(dataset) is Subset:
        return draws_of(dataset.dataset)
    return getattr(_batch_reader(dataset), "draws", False) is True


def _batch_reader(dataset: Any) -> Any:
    """Return what makes the dataset's batches: its transform where that can, otherwise the dataset itself."""
    transform = getattr(dataset, "transform", None)
    if isinstance(transform, BatchingTransform):
        return transform.batch_reader_for(dataset) or dataset
    return dataset


def _read_subset(read: Callable[[Any], Any], positions: Any, indices: Any) -> Any:
    return read([positions[index] for index in indices])


class ThreadIterator(CountsBatches, torch_loader._BaseDataLoaderIter):
    """Iterates over batches made by threads; torch's base class draws the seed and iterates the sampler."""

    @uncounted
    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        source = source_of(loader)
        read = reader_of(source)
        if read is None:
            raise ValueError("the dataset no longer has a read_batch that releases the GIL")
        workers = self._num_workers
        self._pace = None if workers else _paces.setdefault(loader, ReadAheadPace())
        self._most_ahead = workers * (loader.prefetch_factor or 0) or MANY
        self._settled = math.inf if workers else settled_batches(loader.batch_sampler)
        self._asked = 0
        self._read = read
        self._pins = self._pin_memory
        memory = _memories.setdefault(loader, Recycled(self._most_ahead + 2))
        make, begin = _in_pinned_memory(read) if self._pins else _in_recycled_memory(read, memory)
        count = workers or THREADS
        draws = draws_of(source)
        resumed = progress_of(loader) if draws else UNTRACKED
        self.stream_notes = None if resumed is UNTRACKED else _loaded_notes(resumed)
        self._reading = BatchThreads(
            count,
            make if self.stream_notes is None else _noting_stream(make),
            _with_streams(begin, _streams(int(self._base_seed), count, self.stream_notes)),
            in_turn=draws,
            first_turn=0 if resumed is UNTRACKED else resumed.next_worker,
        )
        if self._pace is not None:
            self._pace.begins()
        else:
            self._reset(loader, first_iter=True)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Begin an epoch: with workers torch asks the sampler now, without them at the first batch."""
        super()._reset(loader, first_iter)
        if not first_iter:
            self._reading.drop()
        self._read_ahead()

    def _next_data(self) -> Any:
        if self._pace is None:
            return self._take()
        self._pace.asks(time.perf_counter())
        if self._reading.coming:
            return self._paced(self._take)
        if self._pace.ahead or self._pins:
            self._ask()
            return self._paced(self._take)
        return self._paced(self._make)

    def _paced(self, get: Callable[[], Any]) -> Any:
        assert self._pace is not None, "only a loop without workers is paced"
        try:
            return get()
        finally:
            self._pace.gives(time.perf_counter(), self._reading.make_s)

    def _make(self) -> Any:
        """Make the next batch in this thread."""
        try:
            indices = self._next_index()  # type: ignore[no-untyped-call] # torch's own, which a watcher may time
        except StopIteration:
            self._reading.close()
            raise
        self._asked += 1
        since_s = time.perf_counter()
        try:
            return self._read(indices)
        finally:
            self._reading.make_s = time.perf_counter() - since_s

    def _take(self) -> Any:
        """Take the next batch from the threads."""
        if not self._reading.coming:
            if not self._persistent_workers:
                self._reading.close()
            raise StopIteration
        try:
            batch, error = self._reading.take(self._timeout or None)
        except TimeoutError:
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds") from None
        self._read_ahead()
        if self.stream_notes is not None:
            turn = self.progress.next_worker
            self.progress.next_worker = (turn + 1) % self._num_workers
            if error is None:
                batch, self.stream_notes[turn] = batch
        if error is not None:
            raise error
        return batch

    def _read_ahead(self) -> None:
        ahead = self._most_ahead if self._pace is None else self._pace.ahead
        while self._reading.coming < ahead and self._asked < self._settled and self._ask():
            pass

    def _ask(self) -> bool:
        """Have the sampler's next batch read; False at the end of the epoch."""
        try:
            indices = self._next_index()  # type: ignore[no-untyped-call] # torch's own, which a watcher may time
        except StopIteration:
            return False
        self._asked += 1
        self._reading.ask(_own(indices))
        return True


def _own(indices: Any) -> Any:
    """Return a copy of the indices, which the sampler cannot change while a thread uses them."""
    if isinstance(indices, torch.Tensor):
        return indices.clone()
    return copy.copy(indices)


_Read = Callable[[Any], Any]
_Begin = Callable[[], None]


def _loaded_notes(progress: Progress) -> dict[int, Note]:
    return {number: note for number, note in enumerate(progress.loaded or ()) if note is not None}


def _streams(base_seed: int, count: int, notes: dict[int, Note] | None) -> list[torch.Generator]:
    """Return the random streams of `count` workers: as seeded, or as in the notes of a loaded state."""
    generators = [torch.Generator().manual_seed(base_seed + number) for number in range(count)]
    for number, note in (notes or {}).items():
        set_torch_state(generators[number], note["random"]["torch"])
    return generators


def _with_streams(begin: _Begin, generators: Sequence[torch.Generator]) -> Callable[[int], None]:
    """Return a thread's start-up, by its number: it gets the random stream of the worker with that number."""

    def begin_with_stream(number: int) -> None:
        use_stream_in_thread(RandomStream(generators[number], len(generators)))
        begin()

    return begin_with_stream


def _noting_stream(make: _Read) -> _Read:
    """Return how to make a batch together with a note of the thread's random stream after it."""

    def make_noted(indices: Any) -> tuple[Any, Note]:
        batch = make(indices)
        random = {"torch": torch_state(generator_here()), "numpy": None, "python": None}
        no_state = {"dataset": None, "iterator": None, "is_own": False, "has_ended": False}
        return batch, {"random": random, **no_state}

    return make_noted


def _in_recycled_memory(read: _Read, memory: Recycled) -> tuple[_Read, _Begin]:
    """Return how to make a batch, and a thread's start-up, which chooses the memory for batches."""
    return read, functools.partial(use_allocator_in_thread, memory)


def _in_pinned_memory(read: _Read) -> tuple[_Read, _Begin]:
    """Do the same with memory that torch pins and recycles, on the training thread's device."""
    accelerator: Any = torch.accelerator
    old_names = not hasattr(accelerator, "current_device_index")  # before torch 2.7
    current = accelerator.current_device_idx if old_names else accelerator.current_device_index
    choose = accelerator.set_device_idx if old_names else accelerator.set_device_index
    device_index = current()

    def begin() -> None:
        choose(device_index)
        use_allocator_in_thread(_pinned_memory)

    def make(indices: Any) -> Any:
        pin: _Read = torch_pin.pin_memory  # leaves what is pinned already where it is
        return pin(read(indices))

    return make, begin


def _pinned_memory(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(tuple(shape), dtype=dtype, pin_memory=True)
