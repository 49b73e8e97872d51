"""Iterating over batches that all threads make together, for datasets whose batches are made in steps.

With workers, each of torch's workers draws from a generator of its own; here batch i draws from that of
worker i modulo their number, so that `num_workers` says which numbers are drawn, and nothing about speed.

Without workers torch draws from the process's generator when a batch is asked for. Here batches are drawn
ahead from a copy of it, in the hope that nobody else draws in between. When the loop asks for a batch and the
generator is where the copy was, the batch is right, and the generator moves to where it is after that batch.
Otherwise the batches made ahead are made again.
"""

from __future__ import annotations

import functools
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader

from unstarve.fixes.loader.engines.drawn_batches import THREADS, DrawOrder, Job, Made, make_in_order
from unstarve.fixes.loader.engines.read_ahead import BatchThreads
from unstarve.fixes.loader.engines.thread_iterator import Begin, Finish, Stream, ThreadIterator, note_of
from unstarve.fixes.loader.engines.thread_readers import draws_of, load_of, native_threads_once, source_of
from unstarve.fixes.samples.random_streams import RandomStream, use_stream_in_thread

_AHEAD = THREADS + 1
"""Batches ahead without workers: one is ready while the threads are busy with the others."""


class DrawnAhead:
    """Whether to draw ahead without workers: not for a while after somebody else drew in between."""

    def __init__(self) -> None:
        self._waits = 0
        self._next_wait = 1

    def pays(self) -> bool:
        """Whether to draw ahead of the batch that is asked for now."""
        self._waits -= 1
        return self._waits < 0

    def was_right(self) -> None:
        """A batch was used that had been drawn ahead."""
        self._next_wait = max(self._next_wait - 1, 1)

    def was_wrong(self) -> None:
        """Such batches have to be made again."""
        self._waits = self._next_wait
        self._next_wait = min(2 * self._next_wait, 1024)


_drawn_ahead: weakref.WeakKeyDictionary[DataLoader[Any], DrawnAhead] = weakref.WeakKeyDictionary()


class DrawnIterator(ThreadIterator):
    """Iterates over batches whose random numbers are drawn in order and which all threads compute."""

    def _threads(self, loader: Any, stream: Stream, finish: Finish, begin: Begin) -> BatchThreads:
        source = source_of(loader)
        load = load_of(source)
        assert load is not None, "such datasets have one"
        self._draws = draws_of(source)
        self._ahead = _drawn_ahead.setdefault(loader, DrawnAhead())
        self._indices: deque[Any] = deque()  # without workers: those asked for and not given
        self._again: deque[Any] = deque()  # of batches to be drawn again
        self._state: torch.Tensor | None = None  # of the process's generator before the next batch
        if self._num_workers:
            note = note_of if self.stream_notes is not None else _no_note
            streams = [stream(number) for number in range(self._num_workers)]
            self._order = DrawOrder(streams, note, first_stream=self._first_stream)
        else:
            self._most_ahead = _AHEAD
        return BatchThreads(
            THREADS,
            functools.partial(make_in_order, load, finish),
            functools.partial(_begin, begin, native_threads_once(self._num_workers)),
            makes_all=True,
        )

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        if not first_iter:
            self._order.begin_anew()
        super()._reset(loader, first_iter)

    def _next_data(self) -> Any:
        if self._num_workers:
            return self._take()
        if self._reading.coming:
            self._draw_again() if self._has_moved() else self._ahead.was_right()
        if self._reading.coming or self._ask():
            self._state = torch.default_generator.get_state() if self._draws else None
            self._may_ask_ahead = not self._draws or self._ahead.pays()
            self._read_ahead()
        return self._take()

    def _has_moved(self) -> bool:
        """Whether the process's generator is not where it was when the next batch was drawn ahead."""
        if not self._draws:
            return False
        state = torch.default_generator.get_state()
        return self._state is None or not torch.equal(state, self._state)

    def _draw_again(self) -> None:
        self._ahead.was_wrong()
        self._order.is_over = True
        self._reading.drop()
        self._asked -= len(self._indices)
        self._again.extendleft(reversed(self._indices))
        self._indices.clear()

    def _read_ahead(self) -> None:
        if self._num_workers or self._may_ask_ahead:
            super()._read_ahead()

    _may_ask_ahead = False

    def _next_index(self) -> Any:
        if self._again:
            return self._again.popleft()
        return super()._next_index()  # type: ignore[no-untyped-call] # torch's own, which a watcher may time

    def _job(self, indices: Any) -> Job:
        if not self._num_workers:
            if not self._reading.coming:
                copied = torch.Generator()
                copied.set_state(torch.default_generator.get_state())
                self._order = DrawOrder([copied], torch.Generator.get_state if self._draws else _no_note)
            self._indices.append(indices)
        return self._order.job(indices)

    def _given(self, made: Made) -> Any:
        if not self._num_workers:
            self._indices.popleft()
            if made.note is not None:
                torch.default_generator.set_state(made.note)
                self._state = made.note
        return super()._given(made)


def _begin(begin: Begin, threads: Callable[[], int], number: int) -> None:
    use_stream_in_thread(RandomStream(None, threads))
    begin()


def _no_note(generator: torch.Generator) -> None:
    """Note nothing."""
