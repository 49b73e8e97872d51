"""Measure a stretch of training steps under one setting: time per step, its uncertainty, CPU time."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

from unstarve.intervals import half_width
from unstarve.model import LoaderSettings

_MAX_BLOCKS = 10
_EPOCHS = 3
"""Number of short epochs, measured as wholes, that make a window."""
_OUTLIER = 5.0
"""A step of the training loop that takes this many times the median was a checkpoint, validation or log."""
_OUTLIER_SHARE = 0.05
"""If more steps than this are outliers, they are normal there: loading may take the cores, for example."""
_IMAGE_PRICE = 1.05
"""How much faster reading images with unstarve must be than any other setting: pixels differ slightly."""


@dataclass(frozen=True, slots=True)
class WindowPace:
    """How long to measure."""

    min_steps: int = 12
    min_s: float = 0.3
    max_s: float = 1.2
    """Stop here even if the error is still too large."""
    error: float = 0.03
    """Stop when the error is below this share of the time per step."""


@dataclass(frozen=True, slots=True)
class StepWindow:
    """A measured stretch of steps; times are seconds per step."""

    settings: LoaderSettings
    steps: int
    seconds: float
    block_s: tuple[float, ...]
    """Time per step in each of several parts of the window."""
    wait_s: float
    """The part of it inside ``next()``."""
    cpu_s: float | None = None
    """CPU time of the training process and its workers together."""
    workers_cpu_s: float | None = None
    """The workers' part of it."""
    start_s: float = 0.0
    """What starting workers adds to each step if every epoch starts them again."""

    @property
    def period_s(self) -> float:
        """From one batch to the next."""
        return statistics.fmean(self.block_s) + self.start_s

    @property
    def median_s(self) -> float:
        """Like `period_s`, but a few slow parts of the window hardly count."""
        return statistics.median(self.block_s) + self.start_s

    @property
    def step_s(self) -> float:
        """Training alone, without waiting."""
        return max(statistics.fmean(self.block_s) - self.wait_s, 0.0)

    @property
    def wait_share(self) -> float:
        """Time inside ``next()`` over step time."""
        mean = statistics.fmean(self.block_s)
        return min(self.wait_s / mean, 1.0) if mean > 0 else 0.0

    @property
    def error_s(self) -> float:
        """Half the width of the interval around `period_s`."""
        return half_width(self.block_s)


def price_of(settings: LoaderSettings) -> float:
    """Factor on the time per step when settings are ranked: different pixels must be worth it."""
    return _IMAGE_PRICE if settings.images else 1.0


class CpuClock:
    """CPU time of this process and of its workers since the clock was made."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = tuple(pids)
        self._main_s = time.process_time()
        self._workers_s = self._read()

    def elapsed_s(self) -> tuple[float, float] | None:
        """This process's and the workers' CPU time; None if a worker is gone or cannot be read."""
        workers_s = self._read()
        if workers_s is None or self._workers_s is None:
            return None
        return time.process_time() - self._main_s, workers_s - self._workers_s

    def _read(self) -> float | None:
        try:
            spent = [psutil.Process(pid).cpu_times() for pid in self._pids]
        except psutil.Error:
            return None
        return sum(times.user + times.system for times in spent)


class WindowCollector:
    """Collects one window, batch by batch; batches that fill the pipeline are left out."""

    def __init__(self, settings: LoaderSettings, pace: WindowPace) -> None:
        self.settings = settings
        self._pace = pace
        self._cycle = max(settings.num_workers, 1)
        self._skip = 0
        self._last: float | None = None
        self._waits: list[float] = []
        self._steps: list[float] = []
        self._seconds = 0.0
        self._next_check_s = pace.min_s
        self._epochs: list[tuple[int, float]] = []
        self._loop_s, self._loop_steps = 0.0, 0
        self.spent_steps = 0
        self.spent_s = 0.0

    @property
    def is_measuring(self) -> bool:
        """Whether the pipeline is full, so that the next step counts."""
        return self._last is not None and self._skip == 0

    @property
    def steps(self) -> int:
        """Steps measured so far."""
        return len(self._waits)

    def begin(self, skip: int) -> None:
        """Workers have started: leave out the first `skip` batches."""
        self._skip = skip
        self._last = None

    def interrupt(self) -> None:
        """The step under way does not count: an exception was raised, or an epoch ended."""
        self._last = None

    def add(self, asked: float, got: float) -> StepWindow | None:
        """Add a batch, asked for and received at these seconds; return the window when it is complete."""
        last, self._last = self._last, got
        self.spent_steps += 1
        if last is None:
            self._skip = max(self._skip - 1, 0)
            return None
        self.spent_s += got - last
        self._loop_s += asked - last
        self._loop_steps += 1
        if self._skip > 0:
            self._skip -= 1
            return None
        self._waits.append(got - asked)
        self._steps.append(asked - last)
        self._seconds += got - last
        return self._window() if self._is_long_enough() else None

    def add_epoch(self, steps: int, seconds: float) -> StepWindow | None:
        """Add an epoch too short to measure step by step, including its start; three make a window."""
        if steps:
            self._epochs.append((steps, seconds))
        if len(self._epochs) < _EPOCHS:
            return None
        blocks = tuple(seconds / steps for steps, seconds in self._epochs)
        loop_s = self._loop_s / self._loop_steps if self._loop_steps else 0.0
        return StepWindow(
            self.settings,
            steps=sum(steps for steps, _ in self._epochs),
            seconds=sum(seconds for _, seconds in self._epochs),
            block_s=blocks,
            wait_s=max(statistics.fmean(blocks) - loop_s, 0.0),
        )

    def _is_long_enough(self) -> bool:
        pace, count = self._pace, len(self._waits)
        if self._seconds < self._next_check_s or count < max(pace.min_steps, 3 * self._cycle):
            return False
        if count % self._cycle:
            return False
        self._next_check_s = min(self._seconds * 1.3, pace.max_s)  # computing the error costs time, too
        blocks = self._blocks()
        return self._seconds >= pace.max_s or half_width(blocks) <= pace.error * statistics.fmean(blocks)

    def _window(self) -> StepWindow:
        return StepWindow(
            self.settings, len(self._waits), self._seconds, self._blocks(), statistics.fmean(self._waits)
        )

    def _blocks(self) -> tuple[float, ...]:
        """Time per step in up to ten equal parts; each part has whole cycles of one batch per worker."""
        usual = statistics.median(self._steps)
        limit = max(_OUTLIER * usual, 0.001)
        if sum(step > limit for step in self._steps) > max(_OUTLIER_SHARE * len(self._steps), 1):
            limit = math.inf
        times = [
            wait + (step if step <= limit else usual)
            for wait, step in zip(self._waits, self._steps, strict=True)
        ]
        length = self._cycle * math.ceil(len(times) // self._cycle / _MAX_BLOCKS)
        whole = len(times) // length
        return tuple(statistics.fmean(times[n * length : (n + 1) * length]) for n in range(whole))
