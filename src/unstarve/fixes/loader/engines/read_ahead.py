"""Threads that make batches ahead and hand them out in order, and how far ahead they should be.

Reading ahead hides reading behind the training step and keeps storage busy. If the data is in memory already
and the loop does almost nothing with it, there is nothing to hide: waiting batches push each other out of the
CPU's caches, and the hand-off between threads is pure cost.
"""

from __future__ import annotations

import functools
import queue
import resource
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_JOIN_S = 10.0  # a thread that hangs in a dead file system must not hold up the training process longer


_Made = tuple[Any, BaseException | None, float, float]
"""The batch, or the exception raised instead, and the seconds that took: in all, and on a CPU."""


class BatchThreads:
    """`count` threads that call `make` with each argument of `ask`; each first calls `begin` with its number.

    Any free thread makes the next batch. With `in_turn` they take turns, as torch's workers do, beginning
    with thread `first_turn`. With `makes_all` a batch is made even if it is dropped, so that random streams
    stay in step with those of torch's workers.

    The threads are made by the first `ask` and end with the object: at its `close`, when it is
    garbage-collected, or with the process. `make_s` is how long the batch taken last took to make, and
    `make_cpu_s` how long its thread was on a CPU for it.
    """

    def __init__(
        self,
        count: int,
        make: Callable[[Any], Any],
        begin: Callable[[int], None],
        *,
        in_turn: bool = False,
        makes_all: bool = False,
        first_turn: int = 0,
    ) -> None:
        self._makes_all = makes_all
        self._jobs: list[queue.SimpleQueue[Any]] = [
            queue.SimpleQueue() for _ in range(count if in_turn else 1)
        ]
        self._done: queue.SimpleQueue[tuple[int, _Made]] = queue.SimpleQueue()
        self._ready: dict[int, _Made] = {}
        self.make_s = self.make_cpu_s = 0.0
        self._asked = 0
        self._given = 0
        self._begun_at = -first_turn
        self._count = count
        self._make = make
        self._begin = begin
        self._end_threads: Callable[[], Any] | None = None

    @property
    def coming(self) -> int:
        """Batches asked for and not yet taken."""
        return self._asked - self._given

    @property
    def ready(self) -> int:
        """How many of those are finished."""
        return len(self._ready) + self._done.qsize()

    def ask(self, what: Any) -> None:
        """Have one more batch made."""
        if self._end_threads is None:
            self._end_threads = self._started()
        turn = (self._asked - self._begun_at) % len(self._jobs)
        self._jobs[turn].put((self._asked, what))
        self._asked += 1

    def take(self, timeout_s: float | None) -> tuple[Any, BaseException | None]:
        """Wait for the next batch; return it, or the exception that making it raised.

        Raises TimeoutError after `timeout_s`; the batch can still be taken later.
        """
        while (made := self._ready.pop(self._given, None)) is None:
            try:
                number, newest = self._done.get(timeout=timeout_s)
            except queue.Empty:
                raise TimeoutError from None
            if number >= self._given:
                self._ready[number] = newest
        self._given += 1
        value, error, self.make_s, self.make_cpu_s = made
        return value, error

    def close(self) -> None:
        """End the threads; batches asked for are not made."""
        if self._end_threads is not None:
            self._end_threads()

    def _started(self) -> Callable[[], Any]:
        """Start the threads; return what ends them."""
        threads = [
            threading.Thread(
                target=_work,
                args=(
                    self._jobs[i % len(self._jobs)],
                    self._done,
                    self._make,
                    functools.partial(self._begin, i),
                ),
                daemon=True,
                name=f"unstarve-read-{i}",
            )
            for i in range(self._count)
        ]
        end = weakref.finalize(self, _end, self._jobs, threads)
        for thread in threads:
            thread.start()
        return end

    def drop(self) -> None:
        """Forget all batches asked for, and start with the first thread's turn again."""
        if not self._makes_all:
            _empty(self._jobs)
        self._ready.clear()
        self._given = self._begun_at = self._asked


def _work(jobs: Any, done: Any, make: Callable[[Any], Any], begin: Callable[[], None]) -> None:
    has_begun = False
    while (job := jobs.get()) is not None:
        number, what = job
        since_s, since_cpu_s = time.perf_counter(), time.thread_time()
        value = failed = None
        try:
            if not has_begun:
                begin()
                has_begun = True
            value = make(what)
        except BaseException as error:  # raised again where the batch is taken
            failed = error
        done.put((number, (value, failed, time.perf_counter() - since_s, time.thread_time() - since_cpu_s)))
        del value, failed  # only the taker may hold them


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


FEW = 2
"""Batches ahead if data is in memory: one is read while another is used."""
MANY = 6
"""Batches ahead if data comes from storage, which serves several reads in the time of one."""
THREADS = 4
"""Threads for `MANY` batches: the others are finished, or start as soon as a thread is free."""
_STEP_SHARE = 0.25
"""Of the time to read a batch: a shorter step is too short to hide the reading."""
_WEIGHT = 0.3
"""Weight of the newest value in a moving average."""


class ReadAheadPace:
    """Decides how many batches to read ahead, from the times at which the loop asks for and gets batches."""

    def __init__(self) -> None:
        self.ahead = FEW
        self._make_s: float | None = None
        self._step_s: float | None = None
        self._given_s: float | None = None
        self._blocks = _blocks_read()

    def begins(self) -> None:
        """Start an epoch: the time between two epochs is not a step."""
        self._given_s = None
        self._blocks = _blocks_read()

    def asks(self, now_s: float) -> None:
        """The loop asks for its next batch: the time since the last one was its step."""
        if self._given_s is not None:
            self._step_s = _typical(self._step_s, now_s - self._given_s)

    def gives(self, now_s: float, make_s: float, *, waited: bool = False) -> None:
        """The loop gets a batch that took `make_s` to make; `waited`: mostly not on a CPU."""
        self._given_s = now_s
        self._make_s = _typical(self._make_s, make_s)
        blocks = _blocks_read()
        from_storage, self._blocks = blocks > self._blocks, blocks
        if from_storage or waited:
            self.ahead = MANY
        elif self._step_s is not None:
            self.ahead = FEW if self._step_s > _STEP_SHARE * self._make_s else 0


def _typical(before_s: float | None, newest_s: float) -> float:
    return newest_s if before_s is None else (1 - _WEIGHT) * before_s + _WEIGHT * newest_s


def _blocks_read() -> int:
    """Blocks that this process, all threads included, has read from storage so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_inblock
