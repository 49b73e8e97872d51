"""One epoch of a loader that is being tuned: every batch once, in order, whatever settings make it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from unstarve.model import LoaderSettings
from unstarve.tune.crew import Crew, make_crew
from unstarve.tune.explain import makers_in_words
from unstarve.tune.interrupts import interrupts_wait

if TYPE_CHECKING:
    from unstarve.tune.tuner import Tuner

_clock = time.perf_counter


class TunedIterator:
    """Hands out the batches of one epoch.

    When settings change, the present crew takes no more indices, and the following one begins with the next;
    what the present one still has under way is handed out first. Crews that may be needed again wait, by
    who is in them; those of persistent workers belong to the tuner and outlive the epoch.
    """

    def __init__(self, tuner: Tuner, loader: DataLoader[Any]) -> None:
        self._tuner = tuner
        self._loader = loader
        self._ticket, self._stream, self._seeds, self._crews = tuner.begin_epoch(loader)
        self._crew: Crew | None = None
        self._following: Crew | None = None
        self._start_s = 0.0
        self._num_yielded = 0
        self._is_over = False
        if tuner.own.num_workers > 0:
            self._start()  # as torch does: workers begin before the first batch is asked for

    def __iter__(self) -> TunedIterator:
        return self

    def __len__(self) -> int:
        return len(self._loader._index_sampler)

    def __next__(self) -> Any:
        asked = _clock()
        try:
            batch = self._take()
        except StopIteration:
            self._finish()
            raise
        except BaseException:  # also Ctrl-C: this step tells nothing about the settings
            self._tuner.interrupted(self._ticket)
            raise
        self._num_yielded += 1
        tuner = self._tuner
        if tuner.ticket == self._ticket and self._following is None:
            try:
                wanted = tuner.notice(asked, _clock(), batch, self._stream)
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
        return getattr(crew, name)  # who looks for workers finds them

    def __reduce__(self) -> Any:
        raise NotImplementedError("an iterator over a loader cannot be pickled: iterate the loader again")

    # --- crews ---

    def _take(self) -> Any:
        while True:
            crew = self._start() if self._crew is None else self._crew
            if self._following is not None and not crew.pending:
                crew = self._take_over(self._following)
            try:
                return next(crew)
            except StopIteration:
                raise
            except Exception as error:
                if not self._can_do_without(crew):
                    raise
                self._replace(crew, error)

    @interrupts_wait()
    def _start(self) -> Crew:
        """Go on with what is set now: at the beginning of an epoch, or after a crew was lost."""
        settings = self._tuner.settings
        if self._tuner.own.num_workers > 0 and settings.num_workers == 0:
            self._stream.look_ahead()  # torch's workers would have been given their first indices here
        begun = _clock()
        try:
            crew = self._crew_for(settings)
        except Exception as error:
            if settings.makers == self._tuner.own.makers:
                raise
            self._tuner.failed(_not_started(settings, error), settings)
            crew = self._crew_for(self._tuner.settings)
        self._crew = crew
        self._tuner.started(self._ticket, crew.settings, crew.pids, 0, _clock() - begun)
        return crew

    def _crew_for(self, settings: LoaderSettings) -> Crew:
        """A crew that goes on with the stream: one that waits, or a new one."""
        crew = self._crews.get(settings.makers)
        if crew is not None:
            crew.go_on(self._loader, self._stream, settings)
            return crew
        own = settings.makers == self._tuner.own.makers
        self._stream.note()
        try:
            with nullcontext() if own else _no_warnings():
                ring = self._tuner.uses_ring
                crew = make_crew(self._loader, self._stream, settings, next(self._seeds), ring=ring)
        except BaseException:  # also Ctrl-C: what was drawn is still to come
            self._stream.undo()
            raise
        self._stream.forget()
        if not own:
            crew.die_quietly()
        self._crews[settings.makers] = crew
        return crew

    @interrupts_wait()
    def _change(self, settings: LoaderSettings) -> None:
        """Go on under other settings, from the next index on."""
        crew = self._crew
        assert crew is not None
        if settings.makers == crew.settings.makers:
            crew.set_depth(settings.prefetch_factor)
            self._tuner.started(self._ticket, crew.settings, crew.pids, 0, None)
            self._tidy()
            return
        crew.hold()
        begun = _clock()
        try:
            self._following = self._crew_for(settings)
        except Exception as error:  # settings of ours that this machine cannot run: training goes on without
            crew.go_on(self._loader, self._stream, crew.settings)
            self._tuner.failed(_not_started(settings, error), settings)
            self._change(self._tuner.settings)
            return
        self._start_s = _clock() - begun

    def _take_over(self, crew: Crew) -> Crew:
        self._crew, self._following = crew, None
        self._tidy()
        self._tuner.started(self._ticket, crew.settings, crew.pids, crew.ready, self._start_s)
        return crew

    def _tidy(self) -> None:
        """Send those home that are not needed again."""
        for crew in list(self._crews.values()):
            if crew is not self._crew and not self._tuner.may_need(crew.settings):
                self._dismiss(crew)

    def _dismiss(self, crew: Crew) -> None:
        self._crews.pop(crew.settings.makers, None)
        crew.close()

    # --- when something goes wrong, and in the end ---

    def _can_do_without(self, crew: Crew) -> bool:
        """Whether it is not what the user asked for, and has lost a worker or was never able to make a batch.

        Nor is a reader of images: what the user's own makes of a file, or raises, is what is to come.
        What it owes is then made under the user's own settings; if that fails, too, the user is told.
        """
        tuner, settings = self._tuner, crew.settings
        if settings.makers == tuner.own.makers or not tuner.remakes_batches:
            return False
        return settings.images or settings.makers not in tuner.proven or crew.lost_workers

    def _replace(self, crew: Crew, error: Exception) -> None:
        crews = [crew] if self._following is None else [crew, self._following]
        self._stream.give_back([indices for one in crews for indices in one.undelivered()])
        self._crew = self._following = None
        for one in crews:
            self._dismiss(one)
        what = f"{makers_in_words(crew.settings)} failed: {_last_line(error)}"
        self._tuner.failed(what, crew.settings, at_work=True)

    def _finish(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._tuner.finished(self._ticket, self._num_yielded)
        if not self._loader.persistent_workers:
            for crew in list(self._crews.values()):
                self._dismiss(crew)


@contextmanager
def _no_warnings() -> Iterator[None]:
    """About settings that the user has not chosen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _not_started(settings: LoaderSettings, error: Exception) -> str:
    return f"{makers_in_words(settings)} could not be started: {error}"


def _last_line(error: Exception) -> str:
    """Of an exception, which brings a worker's traceback along."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
