"""Inside a DataLoader worker process: when it got a task, what it did, when it sent the batch.

torch's worker loop stays as it is; its two queues are replaced by objects that watch what passes. Every
worker gets here, however it was started: a forked one inherits the wrapped loop, a spawned one runs
unstarve's bootstrap like any Python process of the command.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import time
from collections.abc import Callable
from multiprocessing import queues
from typing import Any

from unstarve.collect import fetching
from unstarve.collect.fetching import FetchProbe
from unstarve.collect.helper_threads import WorkerHelpers
from unstarve.collect.recorder import Recorder, recorder
from unstarve.collect.stuck.stack_dump import leave_stack_when_killed
from unstarve.collect.stuck.state_page import IDLE, SEND, STAGE, START
from unstarve.marks import PacksItself
from unstarve.record import format as f
from unstarve.stack_levels import uncounted

_clock = time.perf_counter_ns


@uncounted
def run_worker(
    original: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    wrap_fetchers: Callable[[], None],
    wrap_transforms: Callable[[], None],
) -> Any:
    """Run torch's worker loop and watch its queues.

    `wrap_fetchers` and `wrap_transforms` patch torch's fetchers and the transform containers in this process.
    """
    owner: Recorder | None = None
    try:
        bound = inspect.signature(original).bind(*args, **kwargs)
        owner = recorder(worker_id=int(bound.arguments["worker_id"]))
        if owner is not None:
            owner.page.words[STAGE] = START
            wrap_fetchers()
            owner.watch_stack()
            helpers = WorkerHelpers(functools.partial(_watching_s, owner))
            probe = FetchProbe(owner, f.NO_LOADER, helpers)
            probe.wrap_transforms = wrap_transforms
            bound.arguments["index_queue"] = _IndexQueue(bound.arguments["index_queue"], probe)
            bound.arguments["data_queue"] = _DataQueue(bound.arguments["data_queue"], probe, helpers)
            args, kwargs = bound.args, bound.kwargs
            fetching.worker_probe = probe
    except Exception as error:  # a worker that cannot be recorded must still work
        print(f"unstarve: not recording worker {os.getpid()}: {error!r}", file=sys.stderr)
    try:
        return original(*args, **kwargs)
    finally:
        if owner is not None:
            owner.close()


def _watching_s(owner: Recorder) -> float:
    """CPU time of the thread that watches this worker."""
    return 0.0 if owner.sampler is None else owner.sampler.own_cpu_s


class _IndexQueue:
    """The queue from which the worker loop reads its tasks."""

    def __init__(self, queue: Any, probe: FetchProbe) -> None:
        self._queue = queue
        self._work = probe.work
        self._words = probe.page.words
        self._has_started = False

    def get(self, *args: Any, **kwargs: Any) -> Any:
        if not self._has_started:
            self._has_started = True
            self._words[STAGE] = IDLE
            leave_stack_when_killed()  # not before: torch has set handlers of its own meanwhile
        task = self._queue.get(*args, **kwargs)
        if type(task) is tuple:
            self._work.task = task[0]
            self._work.received_ns = _clock()
        elif type(task).__name__ == "_ResumeIteration":
            self._work.iteration += 1
        return task

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class _DataQueue:
    """The queue into which the worker loop puts its batches; a thread of the queue pickles and sends them."""

    def __init__(self, queue: Any, probe: FetchProbe, helpers: WorkerHelpers) -> None:
        self._queue = queue
        self._sending: dict[int, tuple[int, int, int]] = {}
        self._cpu_ns = 0
        self._owner = probe.owner
        self._work = probe.work
        self._words = probe.page.words
        _time_pickling(self._sending, probe.owner, helpers)
        self._packs_itself = isinstance(queue, PacksItself)
        if self._packs_itself:
            queue.when_packed = self._packed

    def put(self, item: Any, *args: Any, **kwargs: Any) -> None:
        if type(item[0]) is int:
            # By identity: the queue holds the object until it has pickled it.
            self._sending[id(item)] = (item[0], self._work.iteration, _clock())
            if self._packs_itself:
                self._cpu_ns = time.thread_time_ns()
        self._words[STAGE] = SEND
        self._queue.put(item, *args, **kwargs)
        self._words[STAGE] = IDLE

    def _packed(self, item: Any) -> None:
        task = self._sending.pop(id(item), None)
        if task is not None:
            end_ns, spent_ns = _clock(), time.thread_time_ns() - self._cpu_ns
            self._owner.row(f.SENT, end_ns, f.SentRow(*task, task[2], end_ns, spent_ns))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


def _time_pickling(sending: dict[int, tuple[int, int, int]], owner: Recorder, helpers: WorkerHelpers) -> None:
    """Record how long the queue's thread takes to pickle a batch, shared memory included."""
    stock = queues._ForkingPickler  # type: ignore[attr-defined]  # the name multiprocessing.queues uses

    class TimedPickler(stock):  # type: ignore[misc, valid-type]  # a subclass of what it replaces
        @classmethod
        def dumps(cls, item: Any, protocol: int | None = None) -> Any:
            begin_ns, cpu_ns = _clock(), time.thread_time_ns()
            helpers.sending = True
            try:
                message = stock.dumps(item, protocol)
            finally:
                spent_ns = time.thread_time_ns() - cpu_ns
                helpers.sent_cpu_ns += spent_ns
                helpers.sending = False
            task = sending.pop(id(item), None)
            if task is not None:
                end_ns = _clock()
                owner.row(f.SENT, end_ns, f.SentRow(*task, begin_ns, end_ns, spent_ns))
            return message

    queues._ForkingPickler = TimedPickler  # type: ignore[attr-defined]  # in this worker process alone
