"""Tunes one loader: searches along real training, then watches, and searches again when that is due."""

from __future__ import annotations

import warnings
import weakref
from typing import Any

from torch.utils.data import DataLoader

from unstarve.model import LoaderSettings, Trial, Tuning
from unstarve.tune.crew import Crew
from unstarve.tune.fitness import examine, with_images
from unstarve.tune.iteration import TunedIterator
from unstarve.tune.machine import this_machine
from unstarve.tune.room import MemoryGauge, smaller
from unstarve.tune.round import Options, Round
from unstarve.tune.search import Found
from unstarve.tune.stream import Seeds, Stream, begin
from unstarve.tune.watch import Watch

Crews = dict[tuple[bool, int], Crew]
"""By who is in them."""


class Tuner:
    """`iterate` gives an epoch of the loader; what follows `tuning` is between it and its iterators.

    It keeps no reference to the loader, which owns it: workers go when the user lets go of the loader.
    """

    def __init__(self, loader: DataLoader[Any], options: Options, *, uses_ring: bool = False) -> None:
        self.own = LoaderSettings(loader.num_workers, loader.prefetch_factor)
        self.settings = self.own
        """What runs now, or from the next batch or epoch on."""
        self.uses_ring = uses_ring
        self.ticket = 0
        """Of the iterator whose steps are measured: the last one that has begun."""
        self.proven: set[tuple[bool, int]] = set()
        """Makers that have made batches."""
        self.where: str | None = None
        self._options = options
        self._fitness = examine(loader, deterministic=options.deterministic)
        if options.images:
            self._fitness = with_images(self._fitness, loader)
        self._machine = this_machine(options.max_workers)
        self._memory = MemoryGauge()
        self._crews: Crews = {}
        # Held from here, crews outlive a tuner that the garbage collector has found in a circle: it would
        # close the ends of their queues in any order, under threads that still use them.
        weakref.finalize(self, _send_home, self._crews).atexit = False
        self._seeds: Seeds | None = None
        self._round: Round | None = None
        self._found: Found | None = None
        self._suspect = False
        self._trials: list[Trial] = []
        self._rounds, self._spent_steps, self._spent_s = 0, 0, 0.0
        self._watch = Watch()
        self._last: float | None = None

    @property
    def why_not(self) -> str | None:
        """Why the loader is left alone; None where it is not."""
        return self._fitness.why_not

    @property
    def remakes_batches(self) -> bool:
        """What a crew owes can be asked of another: not so of an iterable dataset."""
        return not self._fitness.at_borders

    def iterate(self, loader: DataLoader[Any]) -> TunedIterator:
        """Begin an epoch."""
        return TunedIterator(self, loader)

    @property
    def tuning(self) -> Tuning:
        """What is known so far."""
        now = self._round
        found = self._found if self.why_not is None else Found(self.own, None, self.why_not)
        if found is None or now is not None:
            shown = Found(self.settings if now is None else now.best, None, "still measuring")
        else:
            shown = found
        return Tuning(
            where=self.where,
            before=self.own,
            chosen=shown.chosen,
            trials=(*self._trials, *(now.trials if now is not None else ())),
            gain=shown.gain,
            keep=shown.chosen == self.own,
            reason=shown.reason,
            settled=shown is found,
            steps=self._spent_steps + (now.spent_steps if now is not None else 0),
            seconds=self._spent_s + (now.spent_s if now is not None else 0.0),
            rounds=max(self._rounds, 1),
            notes=self._fitness.notes,
        )

    # --- an iterator says what happens ---

    def begin_epoch(self, loader: DataLoader[Any]) -> tuple[int, Stream, Seeds, Crews]:
        """Its ticket, the epoch's indices, seeds for its workers, and where its crews belong."""
        persistent = loader.persistent_workers
        if loader.num_workers > 0 and self._seeds is None:
            loader.check_worker_number_rationality()
        stream, seeds = begin(loader, self._seeds)
        self._seeds = seeds if persistent else None
        self.ticket += 1
        self._last = None
        if self._found is None and self._round is None:
            self._search()
        if self._round is not None:
            self._round.begin_epoch(None if persistent else _length(loader), loader.batch_size)
        return self.ticket, stream, seeds, self._crews if persistent else {}

    def started(
        self, ticket: int, settings: LoaderSettings, pids: tuple[int, ...], ready: int, start_s: float | None
    ) -> None:
        """A crew hands out from now on, `ready` batches at once. `start_s` None: it did before."""
        if ticket == self.ticket:
            self._last = None
            if self._round is not None:
                self._round.start_crew(settings, pids, ready, start_s)

    def notice(self, asked: float, got: float, batch: Any, stream: Stream) -> LoaderSettings | None:
        """A batch was handed out. Returns settings to go on with, where they change now."""
        if self._round is not None:
            return self._measured(self._round, asked, got, batch, stream)
        last, self._last = self._last, got
        if last is not None and self._watch.add(got - asked, got - last):
            return self._look()
        return None

    def interrupted(self, ticket: int) -> None:
        """Instead of a batch there was an exception."""
        self._last = None
        if ticket != self.ticket:
            return
        if self._suspect:
            self._search()  # it fails under the user's own settings, too
        if self._round is not None:
            self._round.interrupt()

    def finished(self, ticket: int, steps: int) -> None:
        """The epoch is over."""
        if ticket == self.ticket and self._round is not None and self._round.end_epoch(steps):
            self._go_on(self._round)

    def failed(self, reason: str, settings: LoaderSettings, *, at_work: bool = False) -> None:
        """Settings of ours cannot be run here: back to the user's own.

        Where the same batch that failed `at_work` fails under the user's own, too, they were not to blame.
        Images are left to the user's dataset for good, and what else there is may still be searched.
        """
        if settings.images:
            self._settle(Found(self.own, None, reason), tell=False)
            self._fitness = self._fitness.without_images(reason)
            self._search()
            return
        self._settle(Found(self.own, None, reason))
        self._suspect = at_work

    def give_up(self, error: Exception) -> None:
        """Something in here is wrong: training goes on without it."""
        self._settle(Found(self.settings, None, f"tuning has stopped: {error!r}"), tell=False)
        self.ticket = -1
        warnings.warn(f"autotune has stopped, training goes on: {error!r}", stacklevel=4)

    def may_need(self, settings: LoaderSettings) -> bool:
        """Whether a crew like this one should wait for being asked again."""
        now = self._round
        if settings.makers == self.settings.makers or now is None:
            return settings.makers == self.settings.makers
        return settings.makers in (self.own.makers, now.best.makers)

    # --- searching and watching ---

    def _search(self) -> None:
        self._suspect = False
        self._rounds += 1
        self._round = Round(
            self.own,
            self.settings,
            self._machine,
            self._fitness,
            self._options,
            self.proven,
            uses_ring=self.uses_ring,
        )

    def _measured(
        self, now: Round, asked: float, got: float, batch: Any, stream: Stream
    ) -> LoaderSettings | None:
        if not now.add(asked, got, batch, stream):
            return None
        self._go_on(now)
        return None if self._fitness.at_borders else self.settings

    def _go_on(self, now: Round) -> None:
        """A setting was measured: try the next, or end the search."""
        if now.found is None and self._is_spent(now):
            now.conclude()
        if now.found is None and self._memory.is_short():
            now.conclude(Found(smaller(now.wanted, self.own), None, "memory is running out"))
        if now.found is None:
            self.settings = now.wanted
            self._tell()
        else:
            self._settle(now.found)

    def _is_spent(self, now: Round) -> bool:
        budget_s, budget_steps = self._options.budget_s, self._options.budget_steps
        spent = budget_s is not None and self._spent_s + now.spent_s >= budget_s
        return spent or (budget_steps is not None and self._spent_steps + now.spent_steps >= budget_steps)

    def _settle(self, found: Found, *, tell: bool = True) -> None:
        now, self._round = self._round, None
        if now is not None:
            self._trials += now.trials
            self._spent_steps += now.spent_steps
            self._spent_s += now.spent_s
        self._found = found
        self.settings = found.chosen
        self._last = None
        self._watch.settle()
        if tell:
            self._tell()

    def _look(self) -> LoaderSettings | None:
        """Settled, and a stretch of steps is complete."""
        self._suspect = False
        if self._memory.is_short() and self.settings != smaller(self.settings, self.own):
            self._settle(Found(smaller(self.settings, self.own), None, "memory is running out"))
            return None if self._fitness.at_borders else self.settings
        if self._watch.look() and self._options.budget_s is None and self._options.budget_steps is None:
            self._search()
        return None

    def _tell(self) -> None:
        if self._options.on_change is not None:
            self._options.on_change(self.tuning)


def _length(loader: DataLoader[Any]) -> int | None:
    try:
        return len(loader)
    except (TypeError, NotImplementedError):  # as some datasets and samplers have none
        return None


def _send_home(crews: Crews) -> None:
    while crews:
        crews.popitem()[1].close()
