"""What a worker process tells about itself after each batch: random streams, and states of its dataset.

A worker writes a note only if something in it has changed, into a file without a name that it shares with the
training process. The training process reads it only when a state is saved, so training pays nothing. The
files are sparse: a note may be large, and only the pages in use exist.
"""

from __future__ import annotations

import inspect
import math
import os
import pickle
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import reduction
from typing import Any

from torch.utils.data import IterableDataset, IterDataPipe

from unstarve.fixes.loader.resume.progress import Note
from unstarve.fixes.loader.resume.protocol import is_stateful, state_of
from unstarve.fixes.loader.resume.random_state import ProcessStreams, RandomState, set_process_state

_HEAD = struct.Struct("<qQ")
"""Number of the task after which the note was written, and its length in bytes."""
_BEFORE = -1
"""As the number of a task: written before the epoch's first."""
_NOTHING = -2
_SPACING = 1 << 30
"""Bytes from one note's place in the file to the next."""


def can_note() -> bool:
    """Whether this system can hand files without a name to any worker process."""
    return os.name == "posix"


class NoteFile:
    """The newest notes of one worker. It can be handed to a process that is being started."""

    def __init__(self, places: int, descriptor: int | None = None) -> None:
        self._places = places
        if descriptor is None:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
            os.ftruncate(descriptor, places * _SPACING)
        self._descriptor = descriptor
        self._written = 0
        if os.fstat(descriptor).st_size == 0:
            raise OSError("no room for notes")

    def __del__(self) -> None:
        descriptor, self._descriptor = getattr(self, "_descriptor", -1), -1
        if descriptor >= 0:
            os.close(descriptor)

    def __reduce__(self) -> Any:
        return _received, (self._places, reduction.DupFd(self._descriptor))

    def clear(self) -> None:
        """Forget all notes."""
        for place in range(self._places):
            os.pwrite(self._descriptor, _HEAD.pack(_NOTHING, 0), place * _SPACING)

    def write(self, task: int, note: bytes) -> None:
        """Add a note; the oldest makes room for it."""
        place = self._written % self._places
        self._written += 1
        os.pwrite(self._descriptor, _HEAD.pack(task, len(note)) + note, place * _SPACING)

    def newest(self, before_task: int | None) -> bytes | None:
        """Return the last note written after a task before this one (None: any); None if there is none."""
        heads = [os.pread(self._descriptor, _HEAD.size, p * _SPACING) for p in range(self._places)]
        found = [(*_HEAD.unpack(head), place) for place, head in enumerate(heads)]
        end = math.inf if before_task is None else before_task
        fitting = [(task, size, place) for task, size, place in found if size and task < end]
        if not fitting:
            return None
        _, size, place = max(fitting)
        return os.pread(self._descriptor, size, place * _SPACING + _HEAD.size)


def _received(places: int, duplicate: Any) -> NoteFile:
    return NoteFile(places, duplicate.detach())


class WorkerNotes:
    """The notes of all workers of an iterator, as the training process has them."""

    def __init__(self, workers: int, in_flight: int, loaded: Sequence[Note | None] | None) -> None:
        self.loaded = loaded or [None] * workers
        self.files = [NoteFile(in_flight + 2) for _ in range(workers)]
        for file in self.files:
            file.clear()

    def after(self, tasks: int | None) -> list[Note | None]:
        """Return each worker's note after the first `tasks` tasks (None: all of them).

        A worker without one is as it was seeded.
        """
        notes = [file.newest(tasks) for file in self.files]
        return [
            before if note is None else pickle.loads(note)
            for note, before in zip(notes, self.loaded, strict=True)
        ]

    def for_worker(self, number: int) -> NoteTaker:
        """Return the worker's side."""
        return NoteTaker(self.files[number], self.loaded[number])


class NoteTaker:
    """A worker's side of its notes: it starts from the note of a loaded state, and writes new ones."""

    _streams: ProcessStreams
    """Those of the worker's process: there since it runs."""

    def __init__(self, file: NoteFile, loaded: Note | None) -> None:
        self._file = file
        self._loaded = loaded
        self._last: bytes | None = None
        self._dataset: Any = None
        self._iterator: Any = None
        self._has_ended = False
        self._noted: RandomState | None = None
        self._noted_end = False

    def run(self, loop: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run torch's worker `loop`, and note what changes."""
        bound = inspect.signature(loop).bind(*args, **kwargs)
        given = bound.arguments
        self._streams = ProcessStreams()
        self._dataset = given["dataset"]
        if isinstance(self._dataset, IterableDataset) and not isinstance(self._dataset, IterDataPipe):
            self._follow_iterators()
        given["init_fn"] = self._starting(given["init_fn"])
        queue = given["data_queue"]
        queue.put = self.noting(queue.put)
        loop(*bound.args, **bound.kwargs)

    def _starting(self, init_fn: Callable[[int], None] | None) -> Callable[[int], None]:
        """Return a `worker_init_fn`: torch calls it when the worker is seeded and no sample was read."""

        def start(worker: int) -> None:
            if init_fn is not None:
                init_fn(worker)
            if self._loaded is not None:
                set_process_state(self._loaded["random"])
                if self._loaded["dataset"] is not None and is_stateful(self._dataset):
                    self._dataset.load_state_dict(self._loaded["dataset"])
                self._last = self._note()

        return start

    def _follow_iterators(self) -> None:
        """Learn which iterator the dataset gives torch, and let the first go on where another stopped."""
        taker, kind = self, type(self._dataset)

        def __iter__(dataset: Any) -> Iterator[Any]:
            iterator: Any = kind.__iter__(dataset)
            taker._iterator, taker._has_ended = iterator, False
            loaded, taker._loaded = taker._loaded, None
            if loaded is not None and loaded["iterator"] is not None and is_stateful(iterator):
                iterator.load_state_dict(loaded["iterator"])
            return taker._samples(iter(()) if loaded is not None and loaded["has_ended"] else iterator)

        own = {"__iter__": __iter__, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
        self._dataset.__class__ = type(kind.__name__, (kind,), own)

    def _samples(self, iterator: Iterator[Any]) -> Iterator[Any]:
        while True:  # a for loop would ask a dataset that is its own iterator to begin again
            try:
                sample = next(iterator)
            except StopIteration:
                self._has_ended = True
                return
            yield sample

    def noting(self, put: Callable[..., None]) -> Callable[..., None]:
        """Return a ``put`` for the queue of batches that first notes what making the batch has changed."""

        def noting_put(item: Any, *args: Any, **kwargs: Any) -> None:
            if type(item[0]) is int:
                self._write(item[0], self._note())
            else:  # another epoch begins
                self._file.clear()
                self._last = self._noted = None
                self._iterator, self._has_ended = None, False
                self._write(_BEFORE, self._note())
            put(item, *args, **kwargs)

        return noting_put

    def _note(self) -> bytes | None:
        """Return a note; None if nothing has changed since the last one."""
        random = self._streams.read()
        states = is_stateful(self._dataset) or is_stateful(self._iterator)
        if random is self._noted and not states and self._has_ended == self._noted_end:
            return None
        self._noted, self._noted_end = random, self._has_ended
        is_own = self._iterator is self._dataset
        try:
            note = {
                "random": random,
                "dataset": None if is_own else state_of(self._dataset),
                "iterator": state_of(self._iterator),
                "is_own": is_own,
                "has_ended": self._has_ended,
            }
            return pickle.dumps(note, pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # training goes on; whoever saves a state is told
            return pickle.dumps({"failed": repr(error)})

    def _write(self, task: int, note: bytes | None) -> None:
        if note is not None and note != self._last:
            self._last = note
            self._file.write(task, note)
