"""What stands in for torch's functions while a process is recorded; `hooks` puts it there.

Each function takes the original and returns its replacement. Imports that need all of torch are made when a
replacement runs: torch imports its loader module, and with it this one, before it is complete itself.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from unstarve.collect.loader_origin import creation
from unstarve.collect.stuck.state_page import BEGINS, LOOKED
from unstarve.collect.torch_iterator import TAP, draws_samples
from unstarve.marks import SITE
from unstarve.stack_levels import uncounted

T = TypeVar("T")

_epochs = threading.local()
"""``stack``: the iterators that this thread is creating or resetting; the last one is the innermost.
``sampler_ns``: time spent in the sampler of the innermost one; ``indices``: what it gave out."""


class EpochStart(NamedTuple):
    """An iterator was created or reset."""

    begin_ns: int
    ready_ns: int
    sampler_ns: int
    """Of that time, in the sampler."""
    is_nested: bool
    """It happened inside the ``iter()`` of another loader."""
    mark: Any
    """The device's side of the beginning, a `Mark`; None where there is none."""
    indices: list[Any]
    """What the sampler gave out in that time: indices for the workers' first batches."""


def noting_origin(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap ``DataLoader.__init__``: remember where it comes from."""

    @uncounted
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        quietly(lambda: note(self))

    def note(loader: Any) -> None:
        if SITE not in loader.__dict__:
            loader.__dict__[SITE] = tuple(creation(loader, loader.dataset).origin())

    return __init__


def timed_index(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap ``_next_index``: time the sampler."""

    @uncounted
    def _next_index(self: Any) -> Any:
        begin_ns = time.perf_counter_ns()
        index = original(self)
        tap = self.__dict__.get(TAP)
        if tap is not None and tap.wait.busy:
            tap.wait.sampled(begin_ns)
            if tap.put_aside is not None:
                tap.put_aside(index)
            return index
        stack = getattr(_epochs, "stack", None)
        if stack and stack[-1] is self:
            _epochs.sampler_ns += time.perf_counter_ns() - begin_ns
            _epochs.indices.append(index)
        return index

    return _next_index


def recorded_worker(
    original: Callable[..., Any], wrap_fetchers: Callable[[], None], wrap_transforms: Callable[[], None]
) -> Callable[..., Any]:
    """Wrap the function that a worker process runs.

    It is pickled by its name, so that a spawned worker runs the wrapped one, too.
    """

    @uncounted
    def _worker_loop(*args: Any, **kwargs: Any) -> Any:
        from unstarve.collect.recorded_worker import run_worker  # needs all of torch

        return run_worker(original, args, kwargs, wrap_fetchers, wrap_transforms)

    return _worker_loop


def recorded_next(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap ``__next__`` of an iterator: record the wait for a batch."""

    @uncounted
    def __next__(self: Any) -> Any:
        tap = self.__dict__.get(TAP)
        if tap is None:
            return original(self)
        tap.note_gradients()
        try:
            return tap.next_batch(tap, original, self)
        except (RuntimeError, OSError, EOFError) as error:
            meanwhile = quietly(functools.partial(_note_failure, self, tap, error))
            try:
                if meanwhile is not None:
                    raise meanwhile from error
                raise
            finally:
                del meanwhile  # else this frame would keep the exception, and with it the workers

    return __next__


def probed(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap ``__next__`` once more: where the tap has a probe, count what making the batch costs here."""

    @uncounted
    def __next__(self: Any) -> Any:
        tap = self.__dict__.get(TAP)
        probe = None if tap is None else tap.probe
        return original(self) if probe is None else probe.call(original, (self,), {})

    return __next__


def epoch_beginning(
    original: Callable[..., Any], began: Callable[[Any, Any, EpochStart], None], starts_sampler: bool
) -> Callable[..., Any]:
    """Wrap ``__init__`` of an iterator, or ``_reset`` of one with persistent workers.

    `began` is called afterwards with the iterator and its loader. `starts_sampler` marks torch's base class:
    it asks the sampler for an iterator there, and some samplers make all their batches then. With workers
    that happens twice, in ``__init__`` and in the reset that follows.
    """

    @uncounted
    def beginning(self: Any, *args: Any, **kwargs: Any) -> Any:
        stack = _epochs.__dict__.setdefault("stack", [])
        if any(iterator is self for iterator in stack):
            # A subclass calls its parent's method, or __init__ calls _reset.
            return timed(self, *args, **kwargs) if starts_sampler else original(self, *args, **kwargs)
        loader = args[0] if args else kwargs.get("loader")
        mark, words = quietly(lambda: _prepare(is_outermost=not stack)) or (None, None)
        depth, outer_ns = len(stack), _epochs.__dict__.get("sampler_ns", 0)
        outer = _epochs.__dict__.get("indices")
        indices: list[Any] = []
        begin_ns = time.perf_counter_ns()
        try:
            stack.append(self)  # inside the try: a signal may arrive as soon as this returns
            if words is not None:
                words[BEGINS] = begin_ns
            _epochs.sampler_ns, _epochs.indices = 0, indices
            result = original(self, *args, **kwargs)
        finally:
            del stack[depth:]
            if words is not None:
                words[LOOKED], words[BEGINS] = time.perf_counter_ns(), 0
            sampler_ns, _epochs.sampler_ns = _epochs.__dict__.get("sampler_ns", 0), outer_ns
            _epochs.indices = outer
        ready_ns = time.perf_counter_ns()
        if loader is not None:
            start = EpochStart(begin_ns, ready_ns, sampler_ns, bool(stack), mark, indices)
            quietly(lambda: began(self, loader, start))
        return result

    @uncounted
    def timed(self: Any, *args: Any, **kwargs: Any) -> Any:
        begin_ns = time.perf_counter_ns()
        result = original(self, *args, **kwargs)
        if _epochs.stack[-1] is self and draws_samples(self):
            _epochs.sampler_ns += time.perf_counter_ns() - begin_ns
        return result

    return beginning


def is_beginning() -> bool:
    """Whether this thread is creating or resetting an iterator."""
    return bool(getattr(_epochs, "stack", None))


def _prepare(*, is_outermost: bool) -> tuple[Any, Any]:
    """Import what following an iterator needs, here rather than in every forked worker.

    Returns the device's mark for the beginning of ``iter()``, which is a wait like any other, and the words
    of the page on which that wait is noted.
    """
    from unstarve.launch.follow_iterator import ask_device, words_of_page  # needs all of torch

    return (ask_device(), words_of_page()) if is_outermost else (None, None)


def _note_failure(iterator: Any, tap: Any, error: Exception) -> RuntimeError | None:
    """Look at the workers of an iterator that raised.

    Returns the exception that torch has raised meanwhile, in its handler of SIGCHLD: once for each worker
    that dies, in the middle of anything. It is not ours to keep.
    """
    raised: RuntimeError | None = None
    while True:
        try:
            from unstarve.launch.loader_failure import note_failure  # needs all of torch

            note_failure(iterator, tap, error)
        except RuntimeError as another:
            if raised is not None:
                return raised
            raised = another.with_traceback(None)
        else:
            return raised


def quietly(action: Callable[[], T]) -> T | None:
    """Run a piece of bookkeeping; if it fails, note that in the report and let training go on."""
    try:
        return action()
    except Exception as error:  # a defect of ours must not cost the user the training
        lose(f"a loader could not be followed: {error!r}")
    return None


def lose(message: str) -> None:
    """Note in the report that something could not be recorded; never raises."""
    with contextlib.suppress(Exception):  # whatever failed may fail again
        from unstarve.collect.recorder import recorder  # needs all of torch

        owner = recorder()
        if owner is not None:
            owner.lose(message)
