"""One epoch of a loader that is being tuned: every batch once and in order while crews change."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from unstarve.fixes.loader.resume.progress import UNTRACKED
from unstarve.model import LoaderSettings
from unstarve.stack_levels import uncounted
from unstarve.tune.crews import Crew, make_crew
from unstarve.tune.explain import describe_makers

if TYPE_CHECKING:
    from unstarve.tune.tuner import Tuner

_clock = time.perf_counter


_replaced_handlers: list[Callable[..., Any]] = []
"""Handlers of SIGINT to restore, the user's own first."""


@contextmanager
def delay_interrupts() -> Iterator[None]:
    """Delay a Ctrl-C until the end of this block, or of the function that this decorates.

    While a process forks, Python drops what a signal handler raises: training would go on, but its workers
    would be gone. It also keeps a change from one crew to another from being left half done.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    received: list[int] = []
    _replaced_handlers.append(handler)
    signal.signal(signal.SIGINT, lambda number, _frame: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        _replaced_handlers.pop()
        for number in received[:1]:
            signal.raise_signal(number)


def _restore_in_child() -> None:
    """Workers are interrupted at once, like torch's."""
    if _replaced_handlers:
        signal.signal(signal.SIGINT, _replaced_handlers[0])
        _replaced_handlers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restore_in_child)


class TunedIterator:
    """Delivers the batches of one epoch.

    When settings change, the present crew is paused and the next one goes on with the following index; the
    pending batches of the present one are delivered first. Crews that may be needed again are kept, by their
    makers. With persistent workers the crews belong to the tuner and outlive the epoch.
    """

    progress = UNTRACKED

    def __init__(self, tuner: Tuner, loader: DataLoader[Any]) -> None:
        self._tuner = tuner
        self._loader = loader
        self._ticket, self.stream, self._seeds, self._crews = tuner.begin_epoch(loader)
        self._crew: Crew | None = None
        self._next_crew: Crew | None = None
        self._start_s = 0.0
        self._num_yielded = 0
        self._finished = False
        if tuner.own.num_workers > 0:
            self._start()  # like torch: workers start before the first batch is asked for

    def __iter__(self) -> TunedIterator:
        return self

    def __len__(self) -> int:
        return len(self._loader._index_sampler)

    @uncounted
    def __next__(self) -> Any:
        tuner = self._tuner
        searches = tuner.is_searching
        cpu_s = time.thread_time() if searches else 0.0
        asked = _clock()
        try:
            batch = self._take()
        except StopIteration:
            self._finish()
            raise
        except BaseException as error:  # also Ctrl-C: this step says nothing about the settings
            tuner.interrupted(self._ticket)
            if isinstance(error, Exception):
                self.progress.given += 1  # its indices are used up
            raise
        self._num_yielded += 1
        self.progress.given += 1
        if tuner.ticket == self._ticket and self._next_crew is None:
            try:
                got = _clock()
                cpu_s = time.thread_time() - cpu_s if searches else 0.0
                wanted = tuner.delivered(asked, got, batch, self.stream, cpu_s)
            except Exception as error:  # a defect of ours must not cost the user the training
                tuner.give_up(error)
                wanted = tuner.settings
            if wanted is not None:
                self._change(wanted)
        return batch

    def __getattr__(self, name: str) -> Any:
        crew = vars(self).get("_crew")
        if crew is None or name.startswith("__"):
            raise AttributeError(f"'TunedIterator' object has no attribute '{name}'")
        return getattr(crew, name)  # tools that look for the workers find them

    def __reduce__(self) -> Any:
        raise NotImplementedError("a loader's iterator cannot be pickled; iterate the loader again")

    # --- crews ---

    @uncounted
    def _take(self) -> Any:
        while True:
            crew = self._start() if self._crew is None else self._crew
            if self._next_crew is not None and not crew.pending:
                crew = self._switch_to(self._next_crew)
            try:
                return next(crew)
            except StopIteration:
                raise
            except Exception as error:
                if not self._can_replace(crew):
                    raise
                self._replace(crew, error)

    @delay_interrupts()
    def _start(self) -> Crew:
        """Start a crew with the current settings: when an epoch begins, or after a crew was lost."""
        settings = self._tuner.settings
        if self._tuner.own.num_workers > 0 and settings.num_workers == 0:
            self.stream.look_ahead()  # torch would have sent its workers their first indices here
        begun = _clock()
        try:
            crew = self._crew_for(settings)
        except Exception as error:
            if settings.makers == self._tuner.own.makers:
                raise
            self._tuner.failed(_start_failure(settings, error), settings)
            crew = self._crew_for(self._tuner.settings)
        self._crew = crew
        self._tuner.started(self._ticket, crew.settings, crew.pids, 0, _clock() - begun)
        return crew

    def _crew_for(self, settings: LoaderSettings) -> Crew:
        """A crew that goes on with the stream: one that was kept, or a new one."""
        crew = self._crews.get(settings.makers)
        if crew is not None:
            crew.resume(self._loader, self.stream, settings)
            return crew
        own = settings.makers == self._tuner.own.makers
        self.stream.begin_taking()
        try:
            with nullcontext() if own else _no_warnings():
                ring = self._tuner.uses_ring
                loader = self._tuner.loader_for(settings, self._loader)
                crew = make_crew(loader, self.stream, settings, next(self._seeds), ring=ring)
        except BaseException:  # also Ctrl-C: what was taken is still to come
            self.stream.undo_taking()
            raise
        self.stream.keep_taken()
        if not own:
            crew.ignore_worker_deaths()
        self._crews[settings.makers] = crew
        return crew

    @delay_interrupts()
    def _change(self, settings: LoaderSettings) -> None:
        """Use other settings from the next index on."""
        crew = self._crew
        assert crew is not None
        if settings.makers == crew.settings.makers:
            crew.set_depth(settings.prefetch_factor)
            self._tuner.started(self._ticket, crew.settings, crew.pids, 0, None)
            self._close_unneeded()
            return
        crew.pause()
        begun = _clock()
        try:
            self._next_crew = self._crew_for(settings)
        except Exception as error:  # this machine cannot run our settings: training goes on without them
            crew.resume(self._loader, self.stream, crew.settings)
            self._tuner.failed(_start_failure(settings, error), settings)
            self._change(self._tuner.settings)
            return
        self._start_s = _clock() - begun

    def _switch_to(self, crew: Crew) -> Crew:
        self._crew, self._next_crew = crew, None
        self._close_unneeded()
        self._tuner.started(self._ticket, crew.settings, crew.pids, crew.ready, self._start_s)
        return crew

    def _close_unneeded(self) -> None:
        """Close the crews that are not needed again."""
        for crew in list(self._crews.values()):
            if crew is not self._crew and not self._tuner.may_need(crew.settings):
                self._close(crew)

    def _close(self, crew: Crew) -> None:
        self._crews.pop(crew.settings.makers, None)
        crew.close()

    # --- failures and the end of the epoch ---

    def _can_replace(self, crew: Crew) -> bool:
        """Whether a failed crew was our choice and may be to blame: it lost a worker or never made a batch.

        A crew with a part of ours is always replaced: the user's dataset decides what a sample is or raises.
        The missing batches are then made under the user's own settings; if that fails, too, the user sees it.
        """
        tuner, settings = self._tuner, crew.settings
        if settings.makers == tuner.own.makers or not tuner.can_remake_batches:
            return False
        return bool(settings.part) or settings.makers not in tuner.proven or crew.lost_workers

    def _replace(self, crew: Crew, error: Exception) -> None:
        crews = [crew] if self._next_crew is None else [crew, self._next_crew]
        self.stream.give_back([indices for one in crews for indices in one.undelivered()])
        self._crew = self._next_crew = None
        for one in crews:
            self._close(one)
        what = f"{describe_makers(crew.settings)} failed: {_last_line(error)}"
        self._tuner.failed(what, crew.settings, at_work=True)

    def _finish(self) -> None:
        self.progress.ended = True
        if self._finished:
            return
        self._finished = True
        self._tuner.finished(self._ticket)
        if not self._loader.persistent_workers:
            for crew in list(self._crews.values()):
                self._close(crew)


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Hide warnings about settings that the user did not choose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _start_failure(settings: LoaderSettings, error: Exception) -> str:
    return f"{describe_makers(settings)} could not be started: {error}"


def _last_line(error: Exception) -> str:
    """The message of an exception, which may contain a worker's traceback."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
