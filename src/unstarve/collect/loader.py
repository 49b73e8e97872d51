"""The training process's side of loading: when a batch was asked for, and when it came.

A `Tap` sits on one iteration over one loader. `take` is called instead of the iterator's own
``__next__``; it adds two clock readings and one packed row. Whatever fails in here is noted in the
report and never reaches training.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from unstarve.collect.counters import own_counters
from unstarve.collect.describe import Scale
from unstarve.collect.device import Mark
from unstarve.collect.fetching import Probe
from unstarve.collect.ideal import Ideal
from unstarve.collect.iterator import ready_batches, task_of
from unstarve.collect.receiving import Place
from unstarve.collect.recorder import Recorder, recorder
from unstarve.record import format as f

S = TypeVar("S")
T = TypeVar("T")

_clock = time.perf_counter_ns
_here = threading.local()
"""``depth``: how many ``next()`` of this thread are running inside each other."""

_MOST_OWN_NS = 2**32 - 1
_UNKNOWN = -1

_GRACE_S = 60.0
"""How long a process that was asked to stop may take (it may be saving weights) before a signal ends it."""


class Tap:
    """One epoch of one loader. `begin` to `ready` is ``iter()``; then `take` per batch."""

    __slots__ = (
        "_busy",
        "_epoch",
        "_ideal",
        "_index",
        "_nested",
        "_recorder",
        "_scale",
        "last_task",
        "number",
        "place",
        "probe",
        "sampler_ns",
    )

    def __init__(self, owner: Recorder, number: int, batch_size: int | None, *, collated: bool) -> None:
        self._recorder = owner
        self.number = number
        self._scale = Scale(batch_size, collated=collated)
        self._busy = False
        self._nested = False
        self._epoch = -1
        self._index = 0
        self._ideal: Ideal | None = None
        self.probe: Probe | None = None
        """Times the fetches of this loader, when the training process makes its batches itself."""
        self.place: Place | None = None
        """Tells the workers' queue which epoch it serves."""
        self.last_task = _UNKNOWN
        """torch's number of the batch that was taken out of the workers' queue last."""
        self.sampler_ns = 0
        """Spent in the sampler during this wait."""

    def begin(
        self,
        loader: Any,
        begin_ns: int,
        ready_ns: int,
        *,
        inside: bool = False,
        mark: Mark | None = None,
    ) -> None:
        """``iter(loader)`` has returned: a new epoch; `inside` when another's ``iter()`` called it.

        The loader itself is not kept: it owns the iterator that owns this, and must go when its user lets go.
        """
        owner = self._recorder
        self._nested = inside or getattr(_here, "depth", 0) > 0
        self._epoch = owner.next_epoch(self.number)
        self._index = 0
        if not self._nested:
            self._waited(mark, f.BEGIN_WAIT, begin_ns, ready_ns)
        if owner.ideal is not None and not self._nested:
            owner.ideal.begin_epoch(self.number, loader)
            self._ideal = owner.ideal
        if self.place is not None:
            self.place.epoch = self._epoch
        if self.probe is not None:
            self.probe.iteration = self._epoch
        flags = f.NESTED if self._nested else 0
        thread = owner.thread_number()
        if thread == 0 and not self._nested:
            owner.watch_stack()
        owner.row(f.EPOCH_BEGIN, ready_ns, (self.number, flags, self._epoch, thread, begin_ns, ready_ns))

    def tell_crew(self, pids: list[int]) -> None:
        """The worker processes of this epoch."""
        if pids:
            self._recorder.writer.meta("crew", loader=self.number, epoch=self._epoch, pids=pids)

    def take(self, advance: Callable[[S], T], source: S) -> T:
        """The next batch, as ``advance(source)`` gives it."""
        owner = self._recorder
        if self._busy or not owner.active:
            # A subclass calling its parent's __next__, a forked child, or a limit that was reached.
            return advance(source)
        ideal = self._ideal
        if ideal is not None:
            ideal.before(self.number)
            owner.limit_reached |= ideal.done
        if owner.limit_reached and not self._nested and owner.ends_at(self.number):
            self._stop(_clock())
            return advance(source)
        depth = getattr(_here, "depth", 0)
        _here.depth = depth + 1
        self._busy = True
        ready, at_ask = self._asked(source)
        mark = owner.device.ask() if owner.device is not None and not depth else None
        ask = _clock()
        try:
            batch = advance(source) if ideal is None else ideal.deliver(self.number, advance, source)
        except BaseException as error:
            end = _clock()
            self._waited(mark, f.END_WAIT, ask, end)
            self._end(ask, end, "" if isinstance(error, StopIteration) else type(error).__name__)
            raise
        finally:
            self._busy = False
            _here.depth = depth
        got = _clock()
        self._waited(mark, f.BATCH_WAIT, ask, got)
        try:
            if at_ask is not None:
                spent = _spent(at_ask, own_counters().quick(), outermost=depth == 0)
            else:
                spent = self._spent_by_probe(outermost=depth == 0)
            self._record(batch, ask, got, (task_of(source, self), ready, self.sampler_ns, *spent), depth > 0)
        except Exception as error:  # a defect of ours must not cost the user the training
            owner.lose(f"batch {self._index} of epoch {self._epoch}: {error!r}")
        self._index += 1
        owner.own_ns += _clock() - got
        return batch

    def _asked(self, source: Any) -> tuple[int, tuple[int, int] | None]:
        """Just before the wait: batches that lie ready, and the counters of this thread.

        No counters where the thread fetches by itself: its probe reads the same and more.
        """
        self.sampler_ns = 0
        try:
            if self.probe is not None:
                self.probe.task = self._index
                return _UNKNOWN, None
            ready = ready_batches(source) if self.place is not None else _UNKNOWN
            return ready, own_counters().quick()
        except Exception as error:  # a defect of ours must not cost the user the training
            self._recorder.lose(f"before batch {self._index} of epoch {self._epoch}: {error!r}")
            return _UNKNOWN, None

    def _spent_by_probe(self, *, outermost: bool) -> tuple[int, int, int, int]:
        readings = None if self.probe is None else self.probe.last
        if readings is None:
            return 0, _UNKNOWN, 0, _UNKNOWN
        at_ask, at_got = ((r.cpu_ns, _UNKNOWN if r.queued_ns is None else r.queued_ns) for r in readings)
        return _spent(at_ask, at_got, outermost=outermost)

    def _record(self, batch: Any, ask: int, got: int, inside: tuple[int, ...], nested: bool) -> None:
        owner = self._recorder
        size, nbytes = self._scale.weigh(batch)
        flags, block = f.NESTED if nested else 0, 0
        if not nested:
            owner.count_step(self.number)
            if self._ideal is not None:
                phase, block = self._ideal.label(self.number, batch)
                flags |= phase
        thread = owner.thread_number()
        own_ns, owner.own_ns = min(owner.own_ns, _MOST_OWN_NS), 0
        row = (self.number, flags, self._epoch, self._index, thread, size, nbytes, ask, got, own_ns, block)
        owner.row(f.BATCH, got, row + inside)

    def _waited(self, mark: Mark | None, kind: int, ask: int, got: int) -> None:
        """A wait is over: the device's side of it is timed, too."""
        owner = self._recorder
        if mark is not None and owner.device is not None:
            owner.device.got(mark, (self.number, kind, self._epoch, self._index), ask, got)
            owner.own_ns += owner.device.take_own_ns()

    def _end(self, ask: int, end: int, error: str) -> None:
        name = error.encode()[:32]
        try:
            self._recorder.row(f.EPOCH_END, end, (self.number, 0, self._epoch, ask, end, name))
        except Exception as failure:  # a defect of ours must not hide the user's own exception
            self._recorder.lose(f"the end of epoch {self._epoch}: {failure!r}")

    def _stop(self, now: int) -> None:
        """A limit was reached at the end of the step before: close the record, and perhaps training."""
        owner = self._recorder
        self._end(now, now, "")
        ends_training = owner.settings.steps is None
        owner.stop("stop-after" if ends_training else "steps")
        if ends_training:
            _end_training()


def _spent(at_ask: tuple[int, int], at_got: tuple[int, int], *, outermost: bool) -> tuple[int, int, int, int]:
    """CPU and queued nanoseconds of this wait, and of the step before it."""
    before: tuple[int, int] = getattr(_here, "at_got", at_ask)
    if outermost:
        _here.at_got = at_got
    known = at_ask[1] >= 0
    return (
        at_got[0] - at_ask[0],
        at_got[1] - at_ask[1] if known else _UNKNOWN,
        max(at_ask[0] - before[0], 0),
        max(at_ask[1] - before[1], 0) if known else _UNKNOWN,
    )


def _end_training() -> None:
    """Leave the way a script leaves by itself: ``finally`` blocks and exit handlers run, exit code 0."""
    if threading.current_thread() is not threading.main_thread():
        main = ctypes.c_ulong(threading.main_thread().ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(SystemExit))
    # A main thread that never returns to Python, or that catches SystemExit, is ended by signal.
    timer = threading.Timer(_GRACE_S, os.kill, (os.getpid(), signal.SIGTERM))
    timer.daemon = True
    timer.start()
    raise SystemExit(0)


class Watched:
    """An iterable whose every iteration is recorded; anything else passes through to it."""

    def __init__(self, iterable: Iterable[Any], name: str | None) -> None:
        self._iterable = iterable
        self._name = name

    def __iter__(self) -> Iterator[Any]:
        owner = recorder()
        if owner is None or not owner.active:
            return iter(self._iterable)
        number = owner.loader_number(self, type(self._iterable).__name__, None, self._name)
        tap = Tap(owner, number, getattr(self._iterable, "batch_size", None), collated=True)
        depth = getattr(_here, "depth", 0)
        _here.depth = depth + 1  # a DataLoader in here is nested: its waits are part of this one's
        mark = owner.device.ask() if owner.device is not None and not depth else None
        begin = _clock()
        try:
            iterator = iter(self._iterable)
        finally:
            _here.depth = depth
        tap.begin(self._iterable, begin, _clock(), mark=mark)
        return _WatchedIterator(iterator, tap)

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]  # a TypeError of its own is what len() should give

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_iterable":
            raise AttributeError(name)  # copy and pickle probe an object before it has its attributes
        return getattr(self._iterable, name)


class _WatchedIterator:
    def __init__(self, iterator: Iterator[Any], tap: Tap) -> None:
        self._iterator = iterator
        self._tap = tap

    def __iter__(self) -> _WatchedIterator:
        return self

    def __next__(self) -> Any:
        return self._tap.take(next, self._iterator)


def watch(iterable: Iterable[T], name: str | None = None) -> Iterable[T]:
    """Let `unstarve run` see a loader that is not a ``torch.utils.data.DataLoader``.

    Wrap what the training loop iterates: ``for batch in unstarve.watch(stream): …``. Outside of
    `unstarve run` the iterable is handed out as it is and nothing is recorded.
    """
    return Watched(iterable, name)
