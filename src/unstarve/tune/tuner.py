"""Tunes one loader: searches during training, then watches, and searches again when conditions change."""

from __future__ import annotations

import warnings
import weakref
from typing import Any

import torch
from torch.utils.data import DataLoader

from unstarve.collect.torch_iterator import epoch_length
from unstarve.errors import UsageError
from unstarve.machine import share_of_cores
from unstarve.model import LoaderSettings, Trial, Tuning
from unstarve.model.parts import CACHED
from unstarve.tune.bounds import WorkerLimits
from unstarve.tune.change_watch import ChangeWatch
from unstarve.tune.crews import Crew
from unstarve.tune.index_stream import IndexStream, Seeds, begin_stream
from unstarve.tune.live_search import LiveSearch, Options
from unstarve.tune.memory_fit import MemoryGauge, smaller
from unstarve.tune.sample_cache import CachedLoader, try_cache
from unstarve.tune.search_result import SearchResult
from unstarve.tune.tunability import tunability_of
from unstarve.tune.tuned_epoch import TunedIterator

_MAX_WORKERS = 16
"""Unless there are more cores: beyond that, workers cost more memory and start-up time than they gain."""
Crews = dict[tuple[str, int], Crew]
"""By their makers."""


class Tuner:
    """`iterate` begins an epoch of the loader; the methods after `tuning` are for the epoch's iterator.

    It keeps no reference to the loader, which owns it: workers stop when the user drops the loader.
    """

    def __init__(self, loader: DataLoader[Any], options: Options, *, uses_ring: bool = False) -> None:
        self.own = LoaderSettings(loader.num_workers, loader.prefetch_factor)
        self.settings = self.own
        """What runs now, or from the next batch or epoch on."""
        self.uses_ring = uses_ring
        self.ticket = 0
        """Number of the iterator whose steps are measured: the last one that began."""
        self.proven: set[tuple[str, int]] = set()
        """Makers (see `LoaderSettings.makers`) that have made batches."""
        self.where: str | None = None
        self._options = options
        parts = options.parts and not uses_ring
        self._tunability = tunability_of(
            loader, deterministic=options.deterministic, images=options.images, parts=parts
        )
        self._pinned = loader.pin_memory and torch.accelerator.is_available()
        self._limits = worker_limits(options.max_workers)
        self._memory = MemoryGauge()
        self._loader = weakref.ref(loader)
        self._cached: CachedLoader | None = None
        """Once the search has asked for it, and as long as it may need it."""
        self._crews: Crews = {}
        # The finalizer keeps the crews alive when the garbage collector finds the tuner in a cycle: it would
        # close the ends of their queues in any order, while threads still use them.
        weakref.finalize(self, _close_all, self._crews).atexit = False
        self._seeds: Seeds | None = None
        self._live: LiveSearch | None = None
        self._result: SearchResult | None = None
        self._suspect = False
        self._trials: list[Trial] = []
        self._notes: tuple[str, ...] = ()
        self._searches, self._spent_steps, self._spent_s = 0, 0, 0.0
        self._watch = ChangeWatch()
        self._last_got: float | None = None

    @property
    def why_not(self) -> str | None:
        """Why the loader cannot be tuned; None if it can."""
        return self._tunability.why_not

    @property
    def can_remake_batches(self) -> bool:
        """Whether another crew can make the batches that one still owes: not with an iterable dataset."""
        return not self._tunability.between_epochs

    def iterate(self, loader: DataLoader[Any]) -> TunedIterator:
        """Begin an epoch."""
        return TunedIterator(self, loader)

    @property
    def tuning(self) -> Tuning:
        """What was tried and found so far."""
        now = self._live
        found = self._result if self.why_not is None else SearchResult(self.own, None, self.why_not)
        if found is None or now is not None:
            shown = SearchResult(self.settings if now is None else now.best, None, "still measuring")
        else:
            shown = found
        predicted = None if now is None else now.predicted
        return Tuning(
            where=self.where,
            before=self.own,
            chosen=shown.chosen,
            trials=(
                *self._trials,
                *(now.trials if now is not None else ()),
                *([predicted] if predicted is not None else ()),
            ),
            gain=shown.gain,
            keep=shown.chosen == self.own,
            reason=shown.reason,
            settled=shown is found,
            steps=self._spent_steps + (now.spent_steps if now is not None else 0),
            seconds=self._spent_s + (now.spent_s if now is not None else 0.0),
            rounds=max(self._searches, 1),
            notes=(*self._tunability.notes, *(self._notes if now is None else now.notes)),
            proven_steps=shown.steps,
        )

    def forget_seeds(self) -> None:
        """Let the next epoch draw a seed for persistent workers again."""
        self._seeds = None

    # --- called by the iterator ---

    def begin_epoch(self, loader: DataLoader[Any]) -> tuple[int, IndexStream, Seeds, Crews]:
        """Return the iterator's ticket, the epoch's indices, seeds for its workers, and its crews."""
        persistent = loader.persistent_workers
        if loader.num_workers > 0 and self.ticket == 0:  # Python shows torch's warning once per place
            loader.check_worker_number_rationality()
        stream, seeds = begin_stream(loader, self._seeds)
        self._seeds = seeds if persistent else None
        self.ticket += 1
        self._last_got = None
        if self._result is None and self._live is None:
            begun = self._search()
            if begun.result is not None:
                self._settle(begun.result)
            elif self._options.past is not None:
                self.settings = begun.wanted  # an earlier run of the command began the search
                self._notify()
        if self._live is not None:
            self._live.begin_epoch(epoch_length(loader), loader.batch_size, restarts=not persistent)
        return self.ticket, stream, seeds, self._crews if persistent else {}

    def started(
        self, ticket: int, settings: LoaderSettings, pids: tuple[int, ...], ready: int, start_s: float | None
    ) -> None:
        """A crew delivers from now on, with `ready` batches finished. `start_s` None: the same as before."""
        if ticket == self.ticket:
            self._last_got = None
            if self._live is not None:
                self._live.start_crew(settings, pids, ready, start_s)

    @property
    def is_searching(self) -> bool:
        """Whether steps are measured."""
        return self._live is not None

    def delivered(
        self, asked: float, got: float, batch: Any, stream: IndexStream, wait_cpu_s: float = 0.0
    ) -> LoaderSettings | None:
        """A batch was delivered. Returns other settings if they change now.

        `wait_cpu_s`: what its ``next()`` took of this thread's CPU time.
        """
        if self._live is not None:
            return self._measured(self._live, asked, got, batch, stream, wait_cpu_s)
        last, self._last_got = self._last_got, got
        if last is not None and self._watch.add(got - asked, got - last):
            return self._check()
        return None

    def interrupted(self, ticket: int) -> None:
        """An exception was raised instead of delivering a batch."""
        self._last_got = None
        if ticket != self.ticket:
            return
        if self._suspect:
            self._search()  # it also fails under the user's own settings
        if self._live is not None:
            self._live.interrupt()

    def finished(self, ticket: int) -> None:
        """The epoch is over."""
        if ticket == self.ticket and self._live is not None and self._live.end_epoch():
            self._continue(self._live)

    def end_training(self) -> None:
        """The process is about to end: count what was measured last."""
        if self._live is not None:
            self._live.end_training()
            self._notify()

    def failed(self, reason: str, settings: LoaderSettings, *, at_work: bool = False) -> None:
        """Our settings cannot run here: go back to the user's own.

        If a batch that failed `at_work` also fails under the user's own, our settings were not to blame.
        If a part of ours failed, the search starts over without it.
        """
        if settings.part:
            self._settle(SearchResult(self.own, None, reason), notify=False)
            self._tunability = self._tunability.without(settings.part, reason)
            self._search()
            return
        self._settle(SearchResult(self.own, None, reason))
        self._suspect = at_work

    def give_up(self, error: Exception) -> None:
        """Stop tuning because of a defect in it; training goes on."""
        self._settle(
            SearchResult(self.settings, None, f"tuning stopped because of an internal error: {error!r}"),
            notify=False,
        )
        self.ticket = -1
        warnings.warn(
            f"autotune stopped because of an internal error, training goes on: {error!r}", stacklevel=4
        )

    def loader_for(self, settings: LoaderSettings, loader: DataLoader[Any]) -> Any:
        """The loader, or what stands in for it under these settings."""
        if settings.part != CACHED:
            return loader
        reason = self._prepare(CACHED)  # an earlier run of the command may have chosen it
        if self._cached is None:
            raise UsageError(reason or "the loader is gone")
        return self._cached

    def may_need(self, settings: LoaderSettings) -> bool:
        """Whether to keep a crew with these settings because it may run again."""
        now = self._live
        if settings.makers == self.settings.makers or now is None:
            return settings.makers == self.settings.makers
        return settings.makers in (self.own.makers, now.best.makers)

    # --- searching and watching ---

    def _search(self) -> LiveSearch:
        self._suspect = False
        self._searches += 1
        loader = self._loader()
        begun = self._live = LiveSearch(
            self.own,
            self.settings,
            self._limits,
            self._tunability,
            self._options,
            self.proven,
            uses_ring=self.uses_ring,
            pinned=self._pinned,
            epoch=None if loader is None else epoch_length(loader),
            prepare=self._prepare,
        )
        return begun

    def _prepare(self, part: str) -> str | None:
        """Get ready for a part; the answer says why that cannot be."""
        loader = self._loader()
        if part != CACHED or self._cached is not None or loader is None:
            return None
        found = try_cache(loader)
        if isinstance(found, str):
            return found
        self._cached = CachedLoader(loader, found)
        return None

    def _measured(
        self, now: LiveSearch, asked: float, got: float, batch: Any, stream: IndexStream, wait_cpu_s: float
    ) -> LoaderSettings | None:
        if not now.add(asked, got, batch, stream, wait_cpu_s):
            return None
        self._continue(now)
        waits = self._tunability.between_epochs or (now.result is None and now.waits_for_epoch)
        return None if waits else self.settings

    def _continue(self, now: LiveSearch) -> None:
        """A setting was measured: try the next one, or end the search."""
        if now.result is None and self._is_spent(now):
            now.conclude()
        if now.result is None and self._memory.is_short():
            now.conclude(SearchResult(smaller(now.wanted, self.own), None, "memory is running out"))
        if now.result is None:
            self.settings = now.wanted
            self._notify()
        else:
            self._settle(now.result)

    def _is_spent(self, now: LiveSearch) -> bool:
        budget_s, budget_steps = self._options.budget_s, self._options.budget_steps
        spent = budget_s is not None and self._spent_s + now.spent_s >= budget_s
        return spent or (budget_steps is not None and self._spent_steps + now.spent_steps >= budget_steps)

    def _settle(self, result: SearchResult, *, notify: bool = True) -> None:
        now, self._live = self._live, None
        if now is not None:
            self._trials += now.trials
            self._spent_steps += now.spent_steps
            self._spent_s += now.spent_s
            self._notes = now.notes
        self._result = result
        self.settings = result.chosen
        if result.chosen.part != CACHED:
            self._cached = None
        self._last_got = None
        self._watch.settle()
        if notify:
            self._notify()

    def _check(self) -> LoaderSettings | None:
        """After a stretch of steps with settled tuning: check memory, and whether to search again."""
        self._suspect = False
        if self._memory.is_short() and self.settings != smaller(self.settings, self.own):
            self._settle(SearchResult(smaller(self.settings, self.own), None, "memory is running out"))
            return None if self._tunability.between_epochs else self.settings
        if (
            self._watch.has_changed()
            and self._options.budget_s is None
            and self._options.budget_steps is None
        ):
            self._search()
        return None

    def _notify(self) -> None:
        if self._options.on_change is not None:
            self._options.on_change(self.tuning)


def _close_all(crews: Crews) -> None:
    while crews:
        crews.popitem()[1].close()


def worker_limits(max_workers: int | None = None) -> WorkerLimits:
    """The cores that this process may use, and the most workers to try."""
    cores = share_of_cores()
    return WorkerLimits(cores, max_workers or max(_MAX_WORKERS, int(cores)))
