"""One search during real training: measures windows, sends them to the search, says what to run next."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import psutil

from unstarve.model import LoaderSettings, Trial, Tuning
from unstarve.tune.index_stream import IndexStream
from unstarve.tune.memory_fit import MemoryFit, free_memory, is_on_accelerator
from unstarve.tune.search import Bounds, Search, SearchResult, WorkerLimits
from unstarve.tune.step_window import CpuClock, StepWindow, WindowCollector, WindowPace
from unstarve.tune.tunability import Tunability

_MIN_CPU_STEPS = 5
"""CPU time per step is not reported from fewer steps."""
WARM_UP = 4
"""Without workers, the first batches include one-time work: allocating memory, threads, opening files."""
_MAX_ERROR = 0.9
"""Widest interval to report, as a share of the time per step."""

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
    pace: WindowPace = field(default_factory=WindowPace)


class LiveSearch:
    """`wanted` is the setting to measure now or next; once `result` is set, the search is over."""

    def __init__(
        self,
        own: LoaderSettings,
        present: LoaderSettings,
        limits: WorkerLimits,
        tunability: Tunability,
        options: Options,
        proven: set[tuple[bool, int]],
        *,
        uses_ring: bool,
    ) -> None:
        self._own = own
        self._tunability = tunability
        self._options = options
        self._proven = proven
        self._uses_ring = uses_ring
        self._memory: MemoryFit | None = None
        """Known from the first batch on; until then every setting fits."""
        bounds = Bounds(
            limits,
            fits=lambda settings: self._memory is None or self._memory.fits(settings),
            workers=tunability.workers,
            no_workers=tunability.no_workers,
            several_workers=tunability.several_workers,
            images=tunability.images,
        )
        self._search = Search(own, present, bounds)
        self._steps = self._search.run()
        self.wanted = next(self._steps)
        self.result: SearchResult | None = None
        self.trials: list[Trial] = []
        self.spent_steps, self.spent_s = 0, 0.0
        self._collector = WindowCollector(self.wanted, options.pace)
        self._pids: tuple[int, ...] = ()
        self._cpu: tuple[CpuClock, int] | None = None
        self._starts: dict[tuple[bool, int], float] = {}
        self._length: int | None = None
        self._samples = 1.0
        self._epoch_began = _clock()
        self._began_with: WindowCollector | None = self._collector

    @property
    def best(self) -> LoaderSettings:
        """The best setting so far."""
        return self._search.best_so_far

    def begin_epoch(self, length: int | None, samples: int | None) -> None:
        """Begin an epoch of batches with `samples` samples.

        `length` is its number of batches, if known and if every epoch starts its workers again.
        """
        self._collector.interrupt()
        self._began_with = self._collector
        self._length = length
        self._samples = float(samples or 1)
        self._epoch_began = _clock()

    def end_epoch(self, steps: int) -> bool:
        """Count an epoch too short to measure step by step as a whole. True if that completes a window."""
        collector = self._collector
        collector.interrupt()
        if steps >= 2 * (self.wanted.in_flight + self._options.pace.min_steps):
            return False
        if collector is not self._began_with:
            return False  # the epoch began under other settings
        window = collector.add_epoch(steps, _clock() - self._epoch_began)
        if window is not None:
            self._complete(window)
        return window is not None

    def start_crew(
        self, settings: LoaderSettings, pids: tuple[int, ...], ready: int, start_s: float | None
    ) -> None:
        """Another crew delivers from now on, with `ready` batches finished. `start_s` None: the same crew."""
        count = settings.num_workers
        if start_s is not None and set(pids) != set(self._pids):
            self._starts[settings.makers] = start_s
        self._pids = pids
        filling = 2 * count if start_s is None else count + ready
        self._collector.begin(filling if count else WARM_UP)

    def interrupt(self) -> None:
        """An exception was raised instead of delivering a batch."""
        self._collector.interrupt()

    def add(self, asked: float, got: float, batch: Any, stream: IndexStream) -> bool:
        """A batch was delivered. True if that completes a window: `wanted` or `result` has changed."""
        collector = self._collector
        if self._tunability.between_epochs and collector is not self._began_with:
            return False  # `wanted` takes effect with the next epoch
        self._proven.add(collector.settings.makers)
        if self._memory is None and self._cannot_be_tuned(batch):
            return True
        was_measuring = collector.is_measuring
        window = collector.add(asked, got)
        if collector.is_measuring and not was_measuring:
            self._cpu = CpuClock(self._pids), collector.steps
        if window is None:
            return False
        if stream.batches and not self._tunability.between_epochs:
            self._samples = stream.samples / stream.batches
        self._complete(self._with_costs(window))
        return True

    def conclude(self, result: SearchResult | None = None) -> None:
        """End the search: with `result`, or with what is known so far."""
        self.result = result or self._search.conclude()

    # --- when a window is complete ---

    def _complete(self, window: StepWindow) -> None:
        self.spent_steps += self._collector.spent_steps
        self.spent_s += self._collector.spent_s
        if self._pids and self._memory is not None:
            self._memory = self._memory.with_worker(self._pids[0])
        self.trials.append(_trial(window, self._samples, self._memory))
        try:
            self.wanted = self._steps.send(window)
        except StopIteration as stop:
            self.conclude(stop.value)
        else:
            self._collector = WindowCollector(self.wanted, self._options.pace)

    def _with_costs(self, window: StepWindow) -> StepWindow:
        count = window.settings.num_workers
        if self._length:
            window = replace(window, start_s=self._starts.get(window.settings.makers, 0.0) / self._length)
        clock, from_step = self._cpu or (None, 0)
        spent = None if clock is None else clock.elapsed_s()
        steps = window.steps - from_step
        if spent is None or steps < max(count, _MIN_CPU_STEPS):
            return window
        main_s, workers_s = spent
        return replace(window, cpu_s=(main_s + workers_s) / steps, workers_cpu_s=workers_s / steps)

    def _cannot_be_tuned(self, batch: Any) -> bool:
        """Learn from the first batch how large they are, and whether another process could make them."""
        memory = free_memory(self._options.memory_bytes, uses_shm=not self._uses_ring)
        self._memory = memory.with_batch(batch)
        if self._own.num_workers == 0 and is_on_accelerator(batch):
            reason = "the dataset makes its samples on a device, which workers cannot do"
            self.conclude(SearchResult(self._own, None, reason))
        return self.result is not None


def _trial(window: StepWindow, samples: float, memory: MemoryFit | None) -> Trial:
    """A window of batches with `samples` samples each, as it is reported."""
    period_s = max(window.period_s, 1e-9)
    error_s = min(window.error_s, _MAX_ERROR * period_s)
    settings = window.settings
    rss = None
    if settings.num_workers == 0 or settings.images:
        rss = psutil.Process().memory_info().rss
    elif memory is not None and memory.worker_bytes is not None:
        rss = psutil.Process().memory_info().rss + settings.num_workers * memory.worker_bytes
    return Trial(
        settings=settings,
        kind="measured",
        steps=window.steps,
        seconds=window.seconds,
        samples_per_s=samples / period_s,
        low=samples / (period_s + error_s),
        high=samples / (period_s - error_s),
        wait_share=window.wait_share,
        rss_bytes=rss,
        shm_bytes=None if memory is None else memory.in_flight_bytes(settings),
    )
