"""Tunes one loader: runs the search along real training, then watches."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any

from torch.utils.data import DataLoader

from unstarve.fixes.autotune.crew import Crew
from unstarve.fixes.autotune.fitness import Fitness, examine
from unstarve.fixes.autotune.iteration import TunedIterator
from unstarve.fixes.autotune.machine import CpuClock, this_machine
from unstarve.fixes.autotune.report import trial_of
from unstarve.fixes.autotune.room import Memory, is_short, look_around, on_accelerator, smaller
from unstarve.fixes.autotune.search import Bounds, Found, Search
from unstarve.fixes.autotune.stream import Seeds, Stream, begin
from unstarve.fixes.autotune.watch import Watch
from unstarve.fixes.autotune.window import Collector, Pace, Window
from unstarve.model import LoaderSettings, Trial, Tuning

_clock = time.perf_counter


@dataclass(frozen=True, slots=True)
class Options:
    """How a loader is tuned; `unstarve.autotune` explains them."""

    deterministic: bool = False
    memory_bytes: int | None = None
    max_workers: int | None = None
    budget_s: float | None = None
    budget_steps: int | None = None
    on_change: Callable[[Tuning], None] | None = None
    pace: Pace = field(default_factory=Pace)


class Tuner:
    """`iterate` gives an epoch of the loader; all else is between it and its iterators.

    It keeps no reference to the loader, which owns it: workers go when the user lets go of the loader.
    """

    def __init__(self, loader: DataLoader[Any], options: Options, *, uses_ring: bool = False) -> None:
        self.own = LoaderSettings(loader.num_workers, loader.prefetch_factor)
        self.settings = self.own
        self.uses_ring = uses_ring
        self.ticket = 0
        """Of the iterator whose steps are measured: the last one that has begun."""
        self.proven: set[int] = set()
        """Numbers of workers that have made batches."""
        self.where: str | None = None
        self._options = options
        self._fitness: Fitness = examine(loader, deterministic=options.deterministic)
        self._machine = this_machine(options.max_workers)
        self._crews: dict[int, Crew] = {}
        self._seeds: Seeds | None = None
        self._length: int | None = None
        self._found: Found | None = None
        self._notes = list(self._fitness.notes)
        self._trials: list[Trial] = []
        self._rounds = 0
        self._spent_steps = 0
        self._spent_s = 0.0
        self._memory = Memory()
        self._search: Search | None = None
        self._asking: Generator[LoaderSettings, Window, Found] | None = None
        self._collector: Collector | None = None
        self._pure_epoch: Collector | None = None
        self._epoch_began = 0.0
        self._pids: tuple[int, ...] = ()
        self._starts: dict[int, float] = {}
        self._cpu: tuple[CpuClock, int] | None = None
        self._samples = 1.0
        self._watch = Watch()
        self._last: float | None = None
        self._suspect = False

    @property
    def why_not(self) -> str | None:
        """Why the loader is left alone; None where it is not."""
        return self._fitness.why_not

    @property
    def remakes_batches(self) -> bool:
        """What a crew owes can be asked of another: not so of an iterable dataset."""
        return not self._fitness.at_borders

    @property
    def searching(self) -> bool:
        """Settings are being tried now."""
        return self._asking is not None

    def iterate(self, loader: DataLoader[Any]) -> TunedIterator:
        """Begin an epoch."""
        return TunedIterator(self, loader)

    @property
    def tuning(self) -> Tuning:
        """What is known so far."""
        found, search = self._found, self._search
        if self.why_not is not None:
            found = Found(self.own, None, self.why_not)
        if found is None:
            best = self.own if search is None else search.best_so_far
            found = Found(best, None, "still measuring")
            settled = False
        else:
            settled = True
        return Tuning(
            where=self.where,
            before=self.own,
            chosen=found.chosen,
            trials=tuple(self._trials),
            gain=found.gain,
            keep=found.chosen == self.own,
            reason=found.reason,
            settled=settled,
            steps=self._spent_steps,
            seconds=self._spent_s,
            rounds=max(self._rounds, 1),
            notes=tuple(self._notes),
        )

    def conclude(self) -> None:
        """Settle on what is known so far; what runs changes with the next epoch only."""
        if self._search is not None and self._trials:
            self._settle(self._search.conclude())

    # --- an iterator says what happens ---

    def begin_epoch(self, loader: DataLoader[Any]) -> tuple[int, Stream, Seeds, dict[int, Crew]]:
        """Its ticket, the epoch's indices, seeds for its workers, and where its crews belong."""
        if loader.num_workers > 0:
            loader.check_worker_number_rationality()
        persistent = loader.persistent_workers
        stream, seeds = begin(loader, self._seeds if persistent else None)
        self._seeds = seeds if persistent else None
        self.ticket += 1
        self._length = _length(loader)
        self._last = None
        if self._found is None and self._asking is None:
            self._begin_search()
        if self._collector is not None:
            self._collector.interrupt()
        self._pure_epoch = self._collector
        self._epoch_began = _clock()
        self._samples = float(loader.batch_size or 1)
        return self.ticket, stream, seeds, self._crews if persistent else {}

    def started(
        self,
        ticket: int,
        settings: LoaderSettings,
        pids: tuple[int, ...],
        ready: int,
        start_s: float | None,
    ) -> None:
        """A crew hands out from now on; `ready` batches lie there already. `start_s` None: it did before."""
        if ticket != self.ticket:
            return
        count = settings.num_workers
        self._last = None
        if start_s is not None and set(pids) != set(self._pids):
            self._starts[count] = start_s
        self._pids = pids
        if self._collector is not None:
            self._collector.begin(2 * count if start_s is None else count + ready)

    def interrupted(self, ticket: int) -> None:
        """Instead of a batch there was an exception."""
        self._last = None
        if ticket != self.ticket:
            return
        if self._suspect:
            self._suspect = False
            self._begin_search()
        if self._collector is not None:
            self._collector.interrupt()

    def failed(self, reason: str, *, at_work: bool = False) -> None:
        """A setting of ours cannot be run here: back to the user's own.

        Where it failed `at_work` and the next batch fails under the user's own, too, it was not to blame.
        """
        self._settle(Found(self.own, None, reason))
        self._suspect = at_work

    def finished(self, ticket: int, steps: int) -> None:
        """The epoch is over."""
        collector = self._collector
        if ticket != self.ticket or collector is None:
            return
        collector.interrupt()
        short = steps < 2 * collector.settings.in_flight + 2 * self._options.pace.min_steps
        if short and collector is self._pure_epoch:
            window = collector.add_epoch(steps, _clock() - self._epoch_began)
            if window is not None:
                self._complete(window)

    def may_need(self, num_workers: int) -> bool:
        """Whether a crew of so many should wait for being asked again."""
        if num_workers == self.settings.num_workers:
            return True
        search = self._search
        if self._asking is None or search is None:
            return False
        return num_workers in (self.own.num_workers, search.best_so_far.num_workers)

    def notice(self, asked: float, got: float, batch: Any, stream: Stream) -> LoaderSettings | None:
        """A batch was handed out. Returns settings to go on with, where they change now."""
        collector = self._collector
        self._suspect = False
        if collector is not None:
            return self._measure(collector, asked, got, batch, stream)
        last, self._last = self._last, got
        if last is not None and self._watch.add(got - asked, got - last):
            return self._look()
        return None

    # --- measuring ---

    def _measure(
        self, collector: Collector, asked: float, got: float, batch: Any, stream: Stream
    ) -> LoaderSettings | None:
        self.proven.add(collector.settings.num_workers)
        if self._memory.room is None:
            self._know(batch)
        measured = collector.measures
        window = collector.add(asked, got)
        if collector.measures and not measured:
            self._cpu = CpuClock(self._pids), collector.steps
        if window is None:
            return None
        if stream.batches and not self._fitness.at_borders:
            self._samples = stream.samples / stream.batches
        changed = self._complete(self._with_costs(window))
        return None if self._fitness.at_borders else changed

    def _know(self, batch: Any) -> None:
        """The first batch: how large they are, and whether another process could have made it."""
        self._memory.room = look_around(self._options.memory_bytes).with_batch(batch)
        if self.own.num_workers == 0 and on_accelerator(batch):
            self._fitness = Fitness("the dataset makes its samples on a device: workers cannot")
            self._settle(Found(self.own, None, "the dataset makes its samples on a device"))

    def _with_costs(self, window: Window) -> Window:
        persistent = self._seeds is not None
        if self._length and not persistent:
            window = replace(
                window, start_s=self._starts.get(window.settings.num_workers, 0.0) / self._length
            )
        clock, from_step = self._cpu or (None, 0)
        spent = clock.elapsed_s() if clock is not None else None
        steps = window.steps - from_step
        if spent is None or steps < window.settings.num_workers or steps < _FEW:
            return window
        main_s, workers_s = spent
        return replace(window, cpu_s=(main_s + workers_s) / steps, workers_cpu_s=workers_s / steps)

    def _complete(self, window: Window) -> LoaderSettings:
        """A window is full: tell the search, and return what it asks for next."""
        assert self._asking is not None
        assert self._collector is not None
        self._spent_steps += self._collector.spent_steps
        self._spent_s += self._collector.spent_s
        if self._pids:
            self._memory.know_worker(self._pids[0])
        self._trials.append(trial_of(window, self._samples, self._memory.room))
        try:
            wanted = self._asking.send(window)
        except StopIteration as stop:
            self._settle(stop.value)
        else:
            if self._is_spent() and self._search is not None:
                self._settle(self._search.conclude())
            elif is_short():
                self._back_off()
            else:
                self.settings = wanted
                self._collector = Collector(wanted, self._options.pace)
                self._tell()
        return self.settings

    def _is_spent(self) -> bool:
        budget_s, budget_steps = self._options.budget_s, self._options.budget_steps
        return (budget_s is not None and self._spent_s >= budget_s) or (
            budget_steps is not None and self._spent_steps >= budget_steps
        )

    # --- searching and watching ---

    def _begin_search(self) -> None:
        if self.why_not is not None:
            return
        fitness = self._fitness
        self._rounds += 1
        self._found = None
        self._memory.room = None
        bounds = Bounds(
            self._machine,
            fits=self._memory.fits,
            workers=fitness.workers,
            none=fitness.none,
            several=fitness.several,
        )
        self._search = Search(self.own, self.settings, bounds)
        self._asking = self._search.run()
        self.settings = next(self._asking)
        self._collector = Collector(self.settings, self._options.pace)

    def _settle(self, found: Found) -> None:
        self._found = found
        self.settings = found.chosen
        self._search = self._asking = self._collector = self._cpu = None
        self._last = None
        self._watch.settle()
        self._tell()

    def _look(self) -> LoaderSettings | None:
        if is_short() and self._back_off():
            return None if self._fitness.at_borders else self.settings
        if self._watch.look() and self.why_not is None and not self._is_spent():
            self._begin_search()
            if self._collector is not None:
                self._collector.begin(0)
        return None

    def _back_off(self) -> bool:
        """Memory is running out: take less of it."""
        settings = smaller(self.settings, self.own) or self.own
        if settings == self.settings and self._asking is None:
            return False
        self._settle(Found(settings, None, "memory is running out"))
        return True

    def _tell(self) -> None:
        if self._options.on_change is not None:
            self._options.on_change(self.tuning)


_FEW = 5


def _length(loader: DataLoader[Any]) -> int | None:
    try:
        return len(loader)
    except (TypeError, NotImplementedError):  # as some datasets and samplers have none
        return None
