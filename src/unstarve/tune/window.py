"""A stretch of training steps under one setting: how fast they went, and how sure that is."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from unstarve.intervals import half_width
from unstarve.model import LoaderSettings

_MOST_BLOCKS = 10
_EPOCHS = 3
"""So many short epochs are measured as a whole."""
_FAR = 5.0
"""A step of the training loop that takes so many times the median was a checkpoint, a validation, a log."""
_OTHER_PIXELS = 1.05
"""By how much reading images in another way must be faster than anything else, as pixels differ a bit."""
_RARE = 0.05
"""Of all steps: where more take so long, it is how training goes there, as with cores that loading takes."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long is measured."""

    min_steps: int = 12
    min_s: float = 0.3
    max_s: float = 1.2
    """Goes on up to here while it is not sure enough."""
    error: float = 0.03
    """Of the time per step: what is sure enough, as a share."""


@dataclass(frozen=True, slots=True)
class Window:
    """What was measured; times are seconds per step."""

    settings: LoaderSettings
    steps: int
    seconds: float
    block_s: tuple[float, ...]
    """Time per step in each of several parts of the window."""
    wait_s: float
    """Of it, inside ``next()``."""
    cpu_s: float | None = None
    """CPU time of the training process and its workers together."""
    workers_cpu_s: float | None = None
    """Of it, the workers'."""
    start_s: float = 0.0
    """What starting workers adds to each step, where every epoch does so."""

    @property
    def period_s(self) -> float:
        """From one batch to the next."""
        return statistics.fmean(self.block_s) + self.start_s

    @property
    def usual_s(self) -> float:
        """As `period_s`, but that a few slow parts of the window count for little."""
        return statistics.median(self.block_s) + self.start_s

    @property
    def step_s(self) -> float:
        """What training itself takes."""
        return max(statistics.fmean(self.block_s) - self.wait_s, 0.0)

    @property
    def wait_share(self) -> float:
        """Time inside ``next()`` over step time."""
        mean = statistics.fmean(self.block_s)
        return min(self.wait_s / mean, 1.0) if mean > 0 else 0.0

    @property
    def error_s(self) -> float:
        """Half the width of an interval around `period_s`."""
        return half_width(self.block_s)


def price_of(settings: LoaderSettings) -> float:
    """What times per step are multiplied by before settings are ranked: other pixels must be worth it."""
    return _OTHER_PIXELS if settings.images else 1.0


class Collector:
    """Collects one window, batch by batch; what fills the pipeline is left out."""

    def __init__(self, settings: LoaderSettings, pace: Pace) -> None:
        self.settings = settings
        self._pace = pace
        self._cycle = max(settings.num_workers, 1)
        self._skip = 0
        self._last: float | None = None
        self._waits: list[float] = []
        self._steps: list[float] = []
        self._seconds = 0.0
        self._look_at_s = pace.min_s
        self._epochs: list[tuple[int, float]] = []
        self._own_s, self._own_steps = 0.0, 0
        self.spent_steps = 0
        self.spent_s = 0.0

    @property
    def measures(self) -> bool:
        """The pipeline is full: what comes now is measured."""
        return self._last is not None and self._skip == 0

    @property
    def steps(self) -> int:
        """Measured so far."""
        return len(self._waits)

    def begin(self, skip: int) -> None:
        """Workers have begun: the first batches show their start."""
        self._skip = skip
        self._last = None

    def interrupt(self) -> None:
        """An exception went to the training loop, or an epoch is over."""
        self._last = None

    def add(self, asked: float, got: float) -> Window | None:
        """A batch; returns the window when it is complete. All in seconds of one clock."""
        last, self._last = self._last, got
        self.spent_steps += 1
        if last is None:
            self._skip = max(self._skip - 1, 0)
            return None
        self.spent_s += got - last
        self._own_s += asked - last
        self._own_steps += 1
        if self._skip > 0:
            self._skip -= 1
            return None
        self._waits.append(got - asked)
        self._steps.append(asked - last)
        self._seconds += got - last
        return self._window() if self._is_long_enough() else None

    def add_epoch(self, steps: int, seconds: float) -> Window | None:
        """A whole epoch that was too short to look into, its start included; three make a window."""
        if steps:
            self._epochs.append((steps, seconds))
        if len(self._epochs) < _EPOCHS:
            return None
        blocks = tuple(seconds / steps for steps, seconds in self._epochs)
        own_s = self._own_s / self._own_steps if self._own_steps else 0.0
        return Window(
            self.settings,
            steps=sum(steps for steps, _ in self._epochs),
            seconds=sum(seconds for _, seconds in self._epochs),
            block_s=blocks,
            wait_s=max(statistics.fmean(blocks) - own_s, 0.0),
        )

    def _is_long_enough(self) -> bool:
        pace, count = self._pace, len(self._waits)
        if self._seconds < self._look_at_s or count < max(pace.min_steps, 3 * self._cycle):
            return False
        if count % self._cycle:
            return False
        self._look_at_s = min(self._seconds * 1.3, pace.max_s)  # looking costs time itself
        blocks = self._blocks()
        return self._seconds >= pace.max_s or half_width(blocks) <= pace.error * statistics.fmean(blocks)

    def _window(self) -> Window:
        return Window(
            self.settings, len(self._waits), self._seconds, self._blocks(), statistics.fmean(self._waits)
        )

    def _blocks(self) -> tuple[float, ...]:
        """Time per step in up to ten parts of equal length; batches come in cycles, one of each worker."""
        usual = statistics.median(self._steps)
        limit = max(_FAR * usual, 0.001)
        if sum(step > limit for step in self._steps) > max(_RARE * len(self._steps), 1):
            limit = math.inf
        times = [
            wait + (step if step <= limit else usual)
            for wait, step in zip(self._waits, self._steps, strict=True)
        ]
        length = self._cycle * math.ceil(len(times) // self._cycle / _MOST_BLOCKS)
        whole = len(times) // length
        return tuple(statistics.fmean(times[n * length : (n + 1) * length]) for n in range(whole))
