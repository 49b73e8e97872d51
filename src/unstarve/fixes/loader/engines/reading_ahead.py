"""Threads that make batches ahead, and give them out in the order in which they were asked for."""

from __future__ import annotations

import functools
import queue
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_JOIN_S = 10.0  # a thread that hangs in a dead file system must not hold up the training process longer


_Made = tuple[Any, BaseException | None, float]
"""What was made, or what was raised instead, and how long that took in seconds."""


class ReadingAhead:
    """`count` threads that call `make` with what `ask` is given; each calls `begin` with its number first.

    Whoever is free makes the next one; `in_turn`, they go round, as torch's workers do, and what was asked
    for is made even if it is dropped: whatever a thread draws from stays in step with that worker's.

    They are started when the first is asked for. `make_s` is how long the last one taken took to make. The
    threads end with the object: at its `close`, when nobody holds it any more, or with the process.
    """

    def __init__(
        self, count: int, make: Callable[[Any], Any], begin: Callable[[int], None], *, in_turn: bool = False
    ) -> None:
        self._in_turn = in_turn
        self._jobs: list[queue.SimpleQueue[Any]] = [
            queue.SimpleQueue() for _ in range(count if in_turn else 1)
        ]
        self._done: queue.SimpleQueue[tuple[int, _Made]] = queue.SimpleQueue()
        self._ready: dict[int, _Made] = {}
        self.make_s = 0.0
        self._asked = 0
        self._given = 0
        self._begun_at = 0
        self._threads = [
            threading.Thread(
                target=_work,
                args=(self._jobs[i % len(self._jobs)], self._done, make, functools.partial(begin, i)),
                daemon=True,
                name=f"unstarve-read-{i}",
            )
            for i in range(count)
        ]
        self.close = weakref.finalize(self, _end, self._jobs, self._threads)

    @property
    def coming(self) -> int:
        """How many were asked for and not given out."""
        return self._asked - self._given

    @property
    def ready(self) -> int:
        """How many of those are made."""
        return len(self._ready) + self._done.qsize()

    def ask(self, what: Any) -> None:
        """Have one more made."""
        if self._asked == 0:
            for thread in self._threads:
                thread.start()
        turn = (self._asked - self._begun_at) % len(self._jobs)
        self._jobs[turn].put((self._asked, what))
        self._asked += 1

    def take(self, timeout_s: float | None) -> tuple[Any, BaseException | None]:
        """Wait for the next one: what was made, or what was raised instead.

        Raises TimeoutError where it takes longer; it can then still be taken.
        """
        while (made := self._ready.pop(self._given, None)) is None:
            try:
                number, newest = self._done.get(timeout=timeout_s)
            except queue.Empty:
                raise TimeoutError from None
            if number >= self._given:
                self._ready[number] = newest
        self._given += 1
        value, error, self.make_s = made
        return value, error

    def drop(self) -> None:
        """Forget all that were asked for, and begin a round anew."""
        if not self._in_turn:
            _empty(self._jobs)
        self._ready.clear()
        self._given = self._begun_at = self._asked


def _work(jobs: Any, done: Any, make: Callable[[Any], Any], begin: Callable[[], None]) -> None:
    has_begun = False
    while (job := jobs.get()) is not None:
        number, what = job
        since_s = time.perf_counter()
        try:
            if not has_begun:
                begin()
                has_begun = True
            value = make(what)
            done.put((number, (value, None, time.perf_counter() - since_s)))
            del value  # who takes it is the only one to hold it
        except BaseException as error:  # raised again where the batch is taken
            done.put((number, (None, error, time.perf_counter() - since_s)))


def _end(jobs: list[Any], threads: list[threading.Thread]) -> None:
    _empty(jobs)
    for at in range(len(threads)):
        jobs[at % len(jobs)].put(None)
    for thread in threads:
        if thread.is_alive() and thread is not threading.current_thread():
            thread.join(_JOIN_S)


def _empty(jobs: list[Any]) -> None:
    for some in jobs:
        with suppress(queue.Empty):
            while True:
                some.get_nowait()
