"""One search during real training: measures windows, sends them to the search, says what to run next."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import psutil
import torch

from unstarve.model import LoaderSettings, Trial, Tuning
from unstarve.model.parts import CACHED
from unstarve.tune.bounds import Bounds, WorkerLimits
from unstarve.tune.cpu_clock import CpuClock, CpuTime
from unstarve.tune.index_stream import IndexStream
from unstarve.tune.memory_fit import MemoryFit, free_memory, is_on_accelerator, tensor_count
from unstarve.tune.search import Search
from unstarve.tune.search_result import SearchResult
from unstarve.tune.step_window import StepWindow, WindowCollector, WindowPace
from unstarve.tune.tunability import Tunability
from unstarve.tune.window_forecast import BatchFacts, WindowForecast, forecast_from
from unstarve.tune.window_notes import busy_note, copy_note

_BURSTS = 3
"""An epoch in which this many bursts fit, after the first batch of each worker, is measured by bursts."""
_IN_ROUNDS = 0.5
"""From this share of waiting on, workers deliver in rounds, a batch each."""
_MIN_CPU_S = 0.1
"""CPU time is not read after less time: the kernel counts it in hundredths of a second."""
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
    parts: bool = False
    """Also try unstarve's ways of handing batches over."""
    memory_bytes: int | None = None
    max_workers: int | None = None
    budget_s: float | None = None
    budget_steps: int | None = None
    on_change: Callable[[Tuning], None] | None = None
    past: Past | None = None
    """For a command that is started again: see `unstarve tune --rerun`."""
    pace: WindowPace = field(default_factory=WindowPace)


@dataclass
class Past:
    """What earlier runs of the same command measured, and what its search knew when it decided."""

    windows: list[tuple[StepWindow, float]] = field(default_factory=list)
    """In order, with the samples in a batch."""
    facts: BatchFacts | None = None
    memory: MemoryFit | None = None
    began_cache: bool = False
    """A run was to fill a cache of samples."""
    save: Callable[[Past], object] = lambda past: None

    def why_no_cache(self) -> str | None:
        """Say why the samples are not to be kept this time; None notes that they are."""
        if self.began_cache and not any(window.settings.part == CACHED for window, _ in self.windows):
            return "training ended before an epoch had filled it"
        self.began_cache = True
        self.save(self)
        return None


class _Cache(Enum):
    """An epoch fills it before it is measured."""

    EMPTY = 0
    FILLS = 1
    FULL = 2


class LiveSearch:
    """`wanted` is the setting to measure now or next; once `result` is set, the search is over."""

    def __init__(
        self,
        own: LoaderSettings,
        present: LoaderSettings,
        limits: WorkerLimits,
        tunability: Tunability,
        options: Options,
        proven: set[tuple[str, int]],
        *,
        uses_ring: bool,
        pinned: bool = False,
        epoch: int | None = None,
        prepare: Callable[[str], str | None] = lambda part: None,
    ) -> None:
        self._own = own
        self._limits = limits
        self._facts = BatchFacts(pinned=pinned)
        self._tunability = tunability
        self._options = options
        self._prepare_part = prepare
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
            parts=tunability.parts,
            refused=tunability.refused,
            epoch=lambda: epoch,
            prepare=self._prepare,
        )
        self._search = Search(own, present, bounds, self._forecast)
        self._steps = self._search.run()
        self.wanted = next(self._steps)
        self.result: SearchResult | None = None
        self.trials: list[Trial] = []
        self._sent: list[StepWindow] = []
        self.spent_steps, self.spent_s = 0, 0.0
        if options.past is not None:
            self._remember(options.past)
        self._collector = WindowCollector(self.wanted, options.pace)
        self._pids: tuple[int, ...] = ()
        self._cpu: CpuClock | None = None
        self._cpu_from = 0
        self._spent: CpuTime | None = None
        self._wait_cpu_s = self._loop_cpu_s = 0.0
        self._left_at_s: float | None = None
        """CPU time of the training thread when it got its last batch."""
        self._starts: dict[tuple[str, int], float] = {}
        self._firsts: dict[tuple[str, int], float] = {}
        """Shortest wait for the first batch of an epoch."""
        self._length: int | None = None
        """Batches per epoch, if every epoch starts its workers again."""
        self._cache = _Cache.EMPTY
        self._samples = 1.0
        self._began_with: WindowCollector | None = self._collector

    @property
    def predicted(self) -> Trial | None:
        """What the forecasts promise of their best setting; None if that is the user's own, or measured."""
        found = self._search.predicted
        own = next((one for one in self.trials if one.settings == self._own), None)
        if found is None or own is None or any(one.settings == found.settings for one in self.trials):
            return None
        rate, gain = own.samples_per_s, found.gain
        return Trial(
            found.settings, "predicted", 0, 0.0, rate * gain.ratio, rate * gain.low, rate * gain.high, None
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """The parts that were not tried, and why; and whether the machine was busy."""
        said = copy_note(self._sent, self._facts), busy_note(self._sent, self._limits)
        return (*self._search.untried, *filter(None, said))

    @property
    def waits_for_epoch(self) -> bool:
        """`wanted` is measured over whole epochs: it takes effect with the next one."""
        fills = self.wanted.part == CACHED and self._cache is not _Cache.FULL
        return fills or self._tunability.between_epochs or self._takes_epochs(self.wanted)

    @property
    def best(self) -> LoaderSettings:
        """The best setting so far."""
        return self._search.best_so_far

    def begin_epoch(self, length: int | None, samples: int | None, *, restarts: bool) -> None:
        """Begin an epoch of `length` batches, if known, with `samples` samples.

        `restarts`: every epoch starts its workers again.
        """
        self._length = length if restarts else None
        if self.wanted.part == CACHED and self._cache is not _Cache.FULL:
            self._cache = _Cache(self._cache.value + 1)
            if self._cache is _Cache.FILLS:  # the next epoch is measured
                self._began_with = None
                return
        self._began_with = self._collector
        self._facts = replace(self._facts, epoch=self._length)
        self._samples = float(samples or 1)
        self._left_at_s = None
        self._collector.begin_epoch(_clock(), whole=self._takes_epochs(self.wanted))

    def end_epoch(self) -> bool:
        """The epoch is over. True if that completes a window, of whole epochs."""
        if self._began_with is None:
            return False
        return self._complete_if(self._collector.end_epoch(_clock()))

    def end_training(self) -> None:
        """Training is over: what was measured of a setting counts if that is a window, however short."""
        if self.result is None:
            self._complete_if(self._collector.so_far())

    def start_crew(
        self, settings: LoaderSettings, pids: tuple[int, ...], ready: int, start_s: float | None
    ) -> None:
        """Another crew delivers from now on, with `ready` batches finished. `start_s` None: the same crew."""
        count = settings.num_workers
        self._forget_cpu()  # its workers are others
        self._left_at_s = None
        if start_s is not None and set(pids) != set(self._pids):
            self._starts[settings.makers] = start_s
        self._pids = pids
        filling = 2 * count if start_s is None else count + ready
        self._collector.begin(filling if count else WARM_UP)

    def interrupt(self) -> None:
        """An exception was raised instead of delivering a batch."""
        self._collector.interrupt()

    def add(self, asked: float, got: float, batch: Any, stream: IndexStream, wait_cpu_s: float = 0.0) -> bool:
        """A batch was delivered. True if that completes a window: `wanted` or `result` has changed.

        `wait_cpu_s`: what its ``next()`` took of the training thread's CPU time.
        """
        collector = self._collector
        if self.waits_for_epoch and collector is not self._began_with:
            return False
        self._proven.add(collector.settings.makers)
        if self._memory is None and self._cannot_be_tuned(batch):
            return True
        before_s = self._left_at_s
        self._left_at_s = time.thread_time()
        window = collector.add(asked, got)
        if collector.first_wait_s is not None:
            makers = collector.settings.makers
            self._firsts[makers] = min(collector.first_wait_s, self._firsts.get(makers, math.inf))
        whole = self._takes_epochs(collector.settings)
        if self._cpu is None and (collector.is_measuring or whole):
            self._cpu, self._cpu_from = CpuClock(self._pids), collector.spent_steps
        elif self._cpu is not None and before_s is not None:
            self._wait_cpu_s += wait_cpu_s
            self._loop_cpu_s += max(self._left_at_s - before_s - wait_cpu_s, 0.0)
        if collector.epoch_steps == self._length:
            self._read_cpu()  # torch ends the workers with the epoch
            self._look_at_worker()
        if stream.batches and not self._tunability.between_epochs:
            self._samples = stream.samples / stream.batches
        return self._complete_if(window)

    def conclude(self, result: SearchResult | None = None) -> None:
        """End the search: with `result`, or with what is known so far."""
        self.result = result or self._search.conclude()

    def _prepare(self, part: str) -> str | None:
        past = self._options.past
        why_not = past.why_no_cache() if past is not None and part == CACHED else None
        return why_not or self._prepare_part(part)

    def _remember(self, past: Past) -> None:
        """Go as far as earlier runs of the same training have come, knowing what they knew."""
        now = self._facts, self._memory
        self._facts, self._memory = past.facts or self._facts, past.memory
        unused = list(past.windows)
        while self.result is None:
            known = next((one for one in unused if one[0].settings == self.wanted), None)
            if known is None:
                break
            unused.remove(known)
            window, samples = known
            self.trials.append(_trial(window, samples, self._memory))
            self._send(window)
        self._facts, self._memory = now

    # --- when a window is complete ---

    def _complete_if(self, window: StepWindow | None) -> bool:
        if window is not None:
            window = self._with_cpu(window)
            self._complete(window if window.whole_epochs else self._with_start(window))
        return window is not None

    def _complete(self, window: StepWindow) -> None:
        self.spent_steps += self._collector.spent_steps
        self.spent_s += self._collector.spent_s
        self._look_at_worker()
        self.trials.append(_trial(window, self._samples, self._memory))
        self._forget_cpu()
        past = self._options.past
        if past is not None:
            past.windows.append((window, self._samples))
            past.facts, past.memory = self._facts, self._memory
            past.save(past)
        self._send(window)
        self._collector = WindowCollector(self.wanted, self._options.pace)

    def _look_at_worker(self) -> None:
        if self._pids and self._memory is not None:
            self._memory = self._memory.with_worker(self._pids[0])

    def _send(self, window: StepWindow) -> None:
        self._sent.append(window)
        try:
            self.wanted = self._steps.send(window)
        except StopIteration as stop:
            self.conclude(stop.value)

    def _takes_epochs(self, settings: LoaderSettings) -> bool:
        return self._length is not None and takes_epochs(settings, self._length)

    def _forecast(self, window: StepWindow) -> WindowForecast | None:
        return forecast_from(window, self._limits.cores, self._facts)

    def _with_start(self, window: StepWindow) -> StepWindow:
        """Price in what every epoch costs, where workers start with each."""
        if not self._length:
            return window
        start_s = self._starts.get(window.settings.makers, 0.0)
        return with_start(window, self._length, start_s, self._firsts.get(window.settings.makers))

    def _with_cpu(self, window: StepWindow) -> StepWindow:
        if self._spent is None:
            self._read_cpu()
        return replace(window, cpu=self._spent)

    def _read_cpu(self) -> None:
        """Note the CPU time per step since this crew was measured, unless that is too little to tell."""
        steps = self._collector.spent_steps - self._cpu_from
        if self._cpu is not None and steps and self._cpu.age_s > _MIN_CPU_S:
            self._spent = self._cpu.per_step(steps, self._wait_cpu_s / steps, self._loop_cpu_s / steps)

    def _forget_cpu(self) -> None:
        self._cpu, self._spent = None, None
        self._wait_cpu_s = self._loop_cpu_s = 0.0

    def _cannot_be_tuned(self, batch: Any) -> bool:
        """Learn from the first batch how large they are, and whether another process could make them."""
        memory = free_memory(self._options.memory_bytes, uses_shm=not self._uses_ring)
        self._memory = memory.with_batch(batch)
        self._facts = replace(
            self._facts,
            nbytes=self._memory.batch_bytes or 0,
            tensors=max(tensor_count(batch), 1),
            copied=torch.cuda.is_initialized() and not is_on_accelerator(batch),  # type: ignore[no-untyped-call] # torch's
        )
        if self._own.num_workers == 0 and is_on_accelerator(batch):
            reason = "the dataset makes its samples on a device, which workers cannot do"
            self.conclude(SearchResult(self._own, None, reason))
        return self.result is not None


def with_start(window: StepWindow, length: int, start_s: float, first_s: float | None) -> StepWindow:
    """Add to each step its share of what an epoch of `length` batches costs besides them.

    That is starting the workers (`start_s`, or what is known from `first_s`, the wait for an epoch's first
    batch) and, if training waits for whole rounds of workers, a last round that not all of them fill.
    """
    count, period_s = window.settings.num_workers, window.steady_s
    if not count:
        return window
    in_rounds = window.wait_share > _IN_ROUNDS and not window.settings.shared
    if first_s is not None:
        start_s = max(first_s - period_s * (count if in_rounds else 1), start_s)
    idle = -length % count if in_rounds else 0
    return replace(window, start_s=(start_s + idle * period_s) / length)


def takes_epochs(settings: LoaderSettings, length: int) -> bool:
    """Whether epochs of so many batches are too short to show bursts of so many workers."""
    return 0 < length < (2 + _BURSTS) * settings.num_workers


def _trial(window: StepWindow, samples: float, memory: MemoryFit | None) -> Trial:
    """A window of batches with `samples` samples each, as it is reported."""
    period_s = max(window.period_s, 1e-9)
    error_s = min(window.error_s, _MAX_ERROR * period_s)
    settings = window.settings
    rss = None
    if settings.num_workers == 0 or settings.threads:
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
