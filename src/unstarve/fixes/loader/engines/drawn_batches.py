"""Batches made by several threads while random numbers are drawn in the order of the batches.

A batch is made in three steps (`random_streams.PendingBatch`): its samples are read, its random numbers are
drawn, and it is computed. Only drawing is in order, and it is short. So any thread can make any batch, the
number of threads changes no number, and all threads compute for the batch that the loop waits for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from unstarve.fixes.samples.random_streams import LoadBatch

THREADS = 3
"""Batches in the making at once: one is read while another is computed and a third one waits for its turn."""


@dataclass(frozen=True)
class Made:
    """A batch, or the exception raised instead, and the note taken after its random numbers were drawn."""

    batch: Any
    error: BaseException | None
    note: Any


class DrawOrder:
    """Random streams from which batches draw one after the other, in the order in which they were asked for.

    Batch i draws from stream i modulo their number, as with torch's workers. `note` is called with a stream
    after each batch that has drawn from it.
    """

    def __init__(
        self,
        generators: Sequence[torch.Generator],
        note: Callable[[torch.Generator], Any],
        *,
        first_stream: int = 0,
    ) -> None:
        self._generators = generators
        self._note = note
        self._asked = 0
        self._stream = first_stream
        self._drawn = 0
        self._wanted_from = 0
        self._turns = threading.Condition()
        self.is_over = False
        """No batch is wanted any more, nor what it would draw."""

    def job(self, indices: Any) -> Job:
        """Return the work for the next batch."""
        made = Job(self, self._asked, self._generators[self._stream], indices)
        self._asked += 1
        self._stream = (self._stream + 1) % len(self._generators)
        return made

    def begin_anew(self) -> None:
        """Draw for the batches asked for, make none of them, and give the next one the first stream."""
        self._wanted_from = self._asked
        self._stream = 0

    def wants(self, number: int) -> bool:
        """Whether this batch is still to be made."""
        return not self.is_over and number >= self._wanted_from

    def in_turn(self, number: int, generator: torch.Generator, draw: Callable[[Any], None] | None) -> Any:
        """Call `draw` once all earlier batches have drawn; return the note."""
        with self._turns:
            self._turns.wait_for(lambda: self._drawn == number)
        try:
            if draw is not None:
                draw(generator)
            return self._note(generator)
        finally:
            with self._turns:
                self._drawn += 1
                self._turns.notify_all()


@dataclass(frozen=True)
class Job:
    """One batch to be made."""

    order: DrawOrder
    number: int
    generator: torch.Generator
    indices: Any


def make_in_order(load: LoadBatch, finish: Callable[[Any], Any], job: Job) -> Made:
    """Make a batch; an exception is part of the result, because random numbers may have been drawn before it.

    `finish` is called with the batch. A batch that is not wanted any more only draws.
    """
    order = job.order
    pending = batch = error = note = None
    try:
        pending = None if order.is_over else load(job.indices)
    except BaseException as raised:  # this one, and below, is raised again where the batch is taken
        error = raised
    try:
        note = order.in_turn(job.number, job.generator, None if pending is None else pending.draw)
        if pending is not None and order.wants(job.number):
            batch = finish(pending.make())
    except BaseException as raised:  # as above
        error = raised
    return Made(batch, error, note)
