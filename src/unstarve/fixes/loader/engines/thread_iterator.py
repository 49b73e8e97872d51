"""Iterating over batches that threads make, each batch on one thread."""

from __future__ import annotations

import copy
import functools
import math
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data._utils import pin_memory as torch_pin

from unstarve.fixes.loader.engines.drawn_batches import Made
from unstarve.fixes.loader.engines.index_order import settled_batches
from unstarve.fixes.loader.engines.read_ahead import MANY, THREADS, BatchThreads, ReadAheadPace
from unstarve.fixes.loader.engines.thread_readers import (
    draws_of,
    native_threads_once,
    reader_of,
    source_of,
    splits_batches,
)
from unstarve.fixes.loader.engines.torch_epoch import MarkedInProfiles
from unstarve.fixes.loader.resume.progress import UNTRACKED, CountsBatches, Note, Progress, progress_of
from unstarve.fixes.loader.resume.random_state import set_torch_state, torch_state
from unstarve.fixes.memory.buffers import Recycled, use_allocator_in_thread
from unstarve.fixes.memory.device_batches import use_on_this_stream
from unstarve.fixes.samples.random_streams import RandomStream, generator_here, use_stream_in_thread
from unstarve.stack_levels import uncounted

_paces: weakref.WeakKeyDictionary[DataLoader[Any], ReadAheadPace] = weakref.WeakKeyDictionary()
"""The pace of earlier epochs, for loaders without workers."""

_memories: weakref.WeakKeyDictionary[Any, Recycled] = weakref.WeakKeyDictionary()
"""The batch memory of loaders: an epoch starts with the memory of the one before."""


_COMPUTING = 0.25
"""A thread that was on a CPU for less than this share of the time waited: for storage, or for its turn."""


class ThreadIterator(CountsBatches, MarkedInProfiles):
    """Iterates over batches made by threads; torch's base class draws the seed and iterates the sampler."""

    _pace: ReadAheadPace | None = None
    """How far ahead to read; None: as far as torch would with these workers."""

    @uncounted
    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        source = source_of(loader)
        read = reader_of(source)
        if read is None:
            raise ValueError("the dataset no longer has a read_batch that releases the GIL")
        workers = self._num_workers
        self._most_ahead = workers * (loader.prefetch_factor or 0) or MANY
        settled = settled_batches(loader.batch_sampler)
        self._settled = math.inf if workers else settled
        self._draws_ahead = 0 if not workers else 1 if settled == math.inf else self._most_ahead
        self._asked = 0
        self._drawn: deque[Any] = deque()  # with workers: indices asked for and not given to a thread
        self._pins = self._pin_memory
        draws = draws_of(source)
        resumed = progress_of(loader) if draws and workers else UNTRACKED
        self.stream_notes = None if resumed is UNTRACKED else _loaded_notes(resumed)
        memory = _memories.get(loader)
        if memory is None:
            memory = _memories[loader] = Recycled(self._most_ahead + 2)
        finish, begin = _in_pinned_memory() if self._pins else _in_recycled_memory(memory)
        stream = functools.partial(_stream, int(self._base_seed), dict(self.stream_notes or {}))
        self._first_stream = 0 if resumed is UNTRACKED else resumed.next_worker
        self._reading = self._threads(loader, stream, finish, begin)
        if self._pace is not None:
            self._pace.begins()
        if workers:
            self._reset(loader, first_iter=True)

    def _threads(self, loader: Any, stream: Stream, finish: Finish, begin: Begin) -> BatchThreads:
        """Return threads each of which makes batches alone."""
        source = source_of(loader)
        read, draws = reader_of(source), draws_of(source)
        assert read is not None, "checked by the caller"
        self._read = read
        if not self._num_workers or (splits_batches(source) and not draws and not self._timeout):
            self._pace = _paces.get(loader)
            if self._pace is None:
                self._pace = _paces[loader] = ReadAheadPace()
        tracked = self.stream_notes is not None
        return BatchThreads(
            self._num_workers or THREADS,
            functools.partial(_noted if tracked else _made, read, finish),
            _with_stream(begin, stream, native_threads_once(self._num_workers)),
            in_turn=draws,
            makes_all=draws,
            first_turn=self._first_stream,
        )

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Begin an epoch: with workers torch asks the sampler now, without them at the first batch."""
        super()._reset(loader, first_iter)
        if not first_iter:
            self._reading.drop()
            self._drawn.clear()
            if self._pace is not None:
                self._pace.begins()
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
        assert self._pace is not None, "only called with one"
        try:
            return get()
        finally:
            reading = self._reading
            waited = self._num_workers > 0 and reading.make_cpu_s < _COMPUTING * reading.make_s
            self._pace.gives(time.perf_counter(), reading.make_s, waited=waited)

    def _make(self) -> Any:
        """Make the next batch in this thread."""
        if not self._drawn and not self._draw():
            self._end()
            raise StopIteration
        cpu_clock = time.thread_time if self._num_workers else time.perf_counter  # only workers ask for it
        since_s, since_cpu_s = time.perf_counter(), cpu_clock()
        try:
            return self._read(self._drawn.popleft())
        finally:
            self._reading.make_s = time.perf_counter() - since_s
            self._reading.make_cpu_s = cpu_clock() - since_cpu_s
            self._draw_ahead()

    def _take(self) -> Any:
        """Take the next batch from the threads."""
        if not self._reading.coming:
            self._end()
            raise StopIteration
        try:
            value, error = self._reading.take(self._timeout or None)
        except TimeoutError:
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds") from None
        made = Made(None, error, None) if error is not None else value
        self._read_ahead()
        if self.stream_notes is not None:
            turn = self.progress.next_worker
            self.progress.next_worker = (turn + 1) % self._num_workers
            if made.note is not None:
                self.stream_notes[turn] = made.note
        return self._given(made)

    def _given(self, made: Made) -> Any:
        """Return the batch, or raise what was raised instead."""
        if made.error is not None:
            raise made.error
        if _is_on_gpu(made.batch):
            use_on_this_stream(made.batch)
        return made.batch

    def _read_ahead(self) -> None:
        self._draw_ahead()
        ahead = self._most_ahead
        if self._pace is not None and self._pace.ahead != MANY:
            ahead = min(self._pace.ahead, ahead)
        while self._reading.coming < ahead and self._asked < self._settled and self._ask():
            pass

    def _draw_ahead(self) -> None:
        """With workers, ask the sampler as early as torch would, whenever its batches will be read.

        Where it shows in no random stream, the sampler is only begun as early.
        """
        while self.pending < self._draws_ahead and self._draw():
            pass

    @property
    def pending(self) -> int:
        """Batches whose indices were taken but that were not delivered yet."""
        return len(self._drawn) + self._reading.coming

    def _ask(self) -> bool:
        """Have the next batch read by a thread; False at the end of the epoch."""
        if not self._drawn and not self._draw():
            return False
        self._reading.ask(self._job(self._drawn.popleft()))
        return True

    def _draw(self) -> bool:
        """Take the sampler's next batch; False at the end of the epoch."""
        try:
            indices = self._next_index()  # type: ignore[no-untyped-call] # torch's own, which a watcher may time
        except StopIteration:
            return False
        self._asked += 1
        self._drawn.append(_own(indices))
        return True

    def _end(self) -> None:
        """End the threads, unless they are kept for the next epoch."""
        if not self._persistent_workers:
            self._reading.close()

    def _job(self, indices: Any) -> Any:
        """Return what the threads get to make a batch."""
        return indices


def _own(indices: Any) -> Any:
    """Return a copy of the indices, which the sampler cannot change while a thread uses them."""
    if isinstance(indices, torch.Tensor):
        return indices.clone()
    return copy.copy(indices)


Finish = Callable[[Any], Any]
"""Called with each batch."""
Begin = Callable[[], None]
"""A thread's start-up."""
Stream = Callable[[int], torch.Generator]
"""Returns the random stream of the worker with this number."""


def _loaded_notes(progress: Progress) -> dict[int, Note]:
    return {number: note for number, note in enumerate(progress.loaded or ()) if note is not None}


def _stream(base_seed: int, notes: dict[int, Note], number: int) -> torch.Generator:
    """Return the random stream of a worker: as seeded, or as in the note of a loaded state."""
    generator = torch.Generator().manual_seed(base_seed + number)
    if number in notes:
        set_torch_state(generator, notes[number]["random"]["torch"])
    return generator


def _with_stream(begin: Begin, stream: Stream, threads: Callable[[], int]) -> Callable[[int], None]:
    """Return a thread's start-up, by its number: it gets the random stream of the worker with that number."""

    def begin_with_stream(number: int) -> None:
        use_stream_in_thread(RandomStream(stream(number), threads))
        begin()

    return begin_with_stream


def _made(read: Callable[[Any], Any], finish: Finish, indices: Any) -> Made:
    return Made(finish(read(indices)), None, None)


def _noted(read: Callable[[Any], Any], finish: Finish, indices: Any) -> Made:
    batch = finish(read(indices))
    return Made(batch, None, note_of(generator_here()))


def note_of(generator: torch.Generator | None) -> Note:
    """Return a note of a random stream, as workers make it of theirs."""
    random = {"torch": torch_state(generator), "numpy": None, "python": None}
    return {"random": random, "dataset": None, "iterator": None, "is_own": False, "has_ended": False}


def _in_recycled_memory(memory: Recycled) -> tuple[Finish, Begin]:
    """Return what to do with a batch, and a thread's start-up, which chooses the memory for batches."""
    choose_device = _gpu_of_this_thread()

    def begin() -> None:
        choose_device()
        use_allocator_in_thread(memory)

    return _as_it_is, begin


def _gpu_of_this_thread() -> Callable[[], None]:
    """Return what makes another thread use the GPU that this one uses; CUDA is not initialized for it."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch has no types for it
        return lambda: None
    return functools.partial(torch.cuda.set_device, torch.cuda.current_device())


def _as_it_is(batch: Any) -> Any:
    return batch


def _in_pinned_memory() -> tuple[Finish, Begin]:
    """Do the same with memory that torch pins and recycles, on the training thread's device."""
    accelerator: Any = torch.accelerator
    old_names = not hasattr(accelerator, "current_device_index")  # before torch 2.7
    current = accelerator.current_device_idx if old_names else accelerator.current_device_index
    choose = accelerator.set_device_idx if old_names else accelerator.set_device_index
    device_index = current()

    def begin() -> None:
        choose(device_index)
        use_allocator_in_thread(_pinned_memory)

    def pin(batch: Any) -> Any:
        return batch if _is_on_gpu(batch) else torch_pin.pin_memory(batch)  # type: ignore[no-untyped-call] # torch's

    return pin, begin


def _is_on_gpu(batch: Any) -> bool:
    """Whether a dataset made this batch on a GPU."""
    return isinstance(batch, list) and len(batch) > 0 and getattr(batch[0], "is_cuda", False) is True


def _pinned_memory(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(tuple(shape), dtype=dtype, pin_memory=True)
