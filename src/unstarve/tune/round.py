"""One search along real training: collects windows, tells the search, says which settings come next."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from unstarve.model import LoaderSettings, Trial, Tuning
from unstarve.tune.fitness import Fitness
from unstarve.tune.machine import CpuClock, Machine
from unstarve.tune.report import trial_of
from unstarve.tune.room import Memory, look_around, on_accelerator
from unstarve.tune.search import Bounds, Found, Search
from unstarve.tune.stream import Stream
from unstarve.tune.window import Collector, Pace, Window

_FEW = 5
"""CPU time is not told from fewer steps."""
WARM_UP = 4
"""Batches that the training process makes itself at first show its own start: memory, threads, open files."""
_clock = time.perf_counter


@dataclass(frozen=True, slots=True)
class Options:
    """How a loader is tuned; `unstarve.autotune` explains them."""

    deterministic: bool = False
    images: bool = False
    memory_bytes: int | None = None
    max_workers: int | None = None
    budget_s: float | None = None
    budget_steps: int | None = None
    on_change: Callable[[Tuning], None] | None = None
    pace: Pace = field(default_factory=Pace)


class Round:
    """`wanted` is what is measured now, or next; `found` says that it is over."""

    def __init__(
        self,
        own: LoaderSettings,
        present: LoaderSettings,
        machine: Machine,
        fitness: Fitness,
        options: Options,
        proven: set[tuple[bool, int]],
        *,
        uses_ring: bool,
    ) -> None:
        self._own = own
        self._fitness = fitness
        self._options = options
        self._proven = proven
        self._uses_ring = uses_ring
        self._memory = Memory()
        bounds = Bounds(
            machine, self._memory.fits, fitness.workers, fitness.none, fitness.several, fitness.images
        )
        self._search = Search(own, present, bounds)
        self._asking = self._search.run()
        self.wanted = next(self._asking)
        self.found: Found | None = None
        self.trials: list[Trial] = []
        self.spent_steps, self.spent_s = 0, 0.0
        self._collector = Collector(self.wanted, options.pace)
        self._pids: tuple[int, ...] = ()
        self._cpu: tuple[CpuClock, int] | None = None
        self._starts: dict[tuple[bool, int], float] = {}
        self._length: int | None = None
        self._samples = 1.0
        self._epoch_began = _clock()
        self._began_with: Collector | None = self._collector

    @property
    def best(self) -> LoaderSettings:
        """So far."""
        return self._search.best_so_far

    def begin_epoch(self, length: int | None, samples: int | None) -> None:
        """Of `length` batches, where that is known and workers start anew each time; `samples` in one."""
        self._collector.interrupt()
        self._began_with = self._collector
        self._length = length
        self._samples = float(samples or 1)
        self._epoch_began = _clock()

    def end_epoch(self, steps: int) -> bool:
        """An epoch too short to look into counts as a whole. True when that makes another window complete."""
        collector = self._collector
        collector.interrupt()
        if steps >= 2 * (self.wanted.in_flight + self._options.pace.min_steps):
            return False
        if collector is not self._began_with:
            return False  # it had begun under other settings
        window = collector.add_epoch(steps, _clock() - self._epoch_began)
        if window is not None:
            self._complete(window)
        return window is not None

    def start_crew(
        self, settings: LoaderSettings, pids: tuple[int, ...], ready: int, start_s: float | None
    ) -> None:
        """Others hand out from now on, `ready` batches at once. `start_s` None: they did before."""
        count = settings.num_workers
        if start_s is not None and set(pids) != set(self._pids):
            self._starts[settings.makers] = start_s
        self._pids = pids
        filling = 2 * count if start_s is None else count + ready
        self._collector.begin(filling if count else WARM_UP)

    def interrupt(self) -> None:
        """Instead of a batch there was an exception."""
        self._collector.interrupt()

    def add(self, asked: float, got: float, batch: Any, stream: Stream) -> bool:
        """A batch was handed out. True when a window is complete: `wanted` or `found` is new."""
        collector = self._collector
        if self._fitness.at_borders and collector is not self._began_with:
            return False  # what is wanted comes with the next epoch
        self._proven.add(collector.settings.makers)
        if self._memory.room is None and self._cannot_be_tuned(batch):
            return True
        measured = collector.measures
        window = collector.add(asked, got)
        if collector.measures and not measured:
            self._cpu = CpuClock(self._pids), collector.steps
        if window is None:
            return False
        if stream.batches and not self._fitness.at_borders:
            self._samples = stream.samples / stream.batches
        self._complete(self._with_costs(window))
        return True

    def conclude(self, found: Found | None = None) -> None:
        """End it: with `found`, or with what is known so far."""
        self.found = found or self._search.conclude()

    # --- a window is complete ---

    def _complete(self, window: Window) -> None:
        self.spent_steps += self._collector.spent_steps
        self.spent_s += self._collector.spent_s
        if self._pids:
            self._memory.know_worker(self._pids[0])
        self.trials.append(trial_of(window, self._samples, self._memory.room))
        try:
            self.wanted = self._asking.send(window)
        except StopIteration as stop:
            self.conclude(stop.value)
        else:
            self._collector = Collector(self.wanted, self._options.pace)

    def _with_costs(self, window: Window) -> Window:
        count = window.settings.num_workers
        if self._length:
            window = replace(window, start_s=self._starts.get(window.settings.makers, 0.0) / self._length)
        clock, from_step = self._cpu or (None, 0)
        spent = None if clock is None else clock.elapsed_s()
        steps = window.steps - from_step
        if spent is None or steps < max(count, _FEW):
            return window
        main_s, workers_s = spent
        return replace(window, cpu_s=(main_s + workers_s) / steps, workers_cpu_s=workers_s / steps)

    def _cannot_be_tuned(self, batch: Any) -> bool:
        """The first batch: how large they are, and whether another process could have made it."""
        room = look_around(self._options.memory_bytes, uses_shm=not self._uses_ring)
        self._memory.room = room.with_batch(batch)
        if self._own.num_workers == 0 and on_accelerator(batch):
            self.conclude(Found(self._own, None, "the dataset makes its samples on a device: workers cannot"))
        return self.found is not None
