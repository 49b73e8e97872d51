"""Measure training under one setting: time per batch over whole bursts, its uncertainty, CPU time.

Workers that run in step deliver a batch each at the same moment and then nothing for a while. So a window is
made of bursts: a burst ends where the queue is drained, when training receives a batch it had to wait for.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from unstarve.intervals import t95
from unstarve.model import LoaderSettings
from unstarve.tune.cpu_clock import CpuTime

_MAX_BLOCKS = 10
_MIN_BLOCKS = 3
"""A window has at least this many bursts, however long they take."""
_ENOUGH_EPOCHS = 3
"""This many epochs make a window however short they are."""
_DRAINED = 0.25
"""A batch that training waits for this share of the time per batch shows that the queue was empty."""
_OUTLIER = 5.0
"""A step of the training loop that takes this many times the median was a checkpoint, validation or log."""
_OUTLIER_SHARE = 0.05
"""If more steps than this are outliers, they are normal there: loading may take the cores, for example."""
_LONE_ERROR = 0.1
"""Assumed error of a window with a single block, which says nothing about its own."""


@dataclass(frozen=True, slots=True)
class WindowPace:
    """How long to measure."""

    min_steps: int = 12
    min_s: float = 0.3
    max_s: float = 1.2
    """From here on, stop with the third burst even if the error is still too large."""
    error: float = 0.03
    """Stop when the error is below this share of the time per step."""


class Block(NamedTuple):
    """One or more whole bursts, or a whole epoch."""

    steps: int
    seconds: float

    @property
    def period_s(self) -> float:
        return self.seconds / self.steps


@dataclass(frozen=True, slots=True)
class StepWindow:
    """A measured stretch of steps; times are seconds per step."""

    settings: LoaderSettings
    blocks: tuple[Block, ...]
    wait_s: float
    """The part of it inside ``next()``."""
    cpu: CpuTime | None = None
    start_s: float = 0.0
    """What starting workers adds to each step if every epoch starts them again."""
    whole_epochs: bool = False
    """Blocks are epochs, with the start of their workers in them."""

    @property
    def steps(self) -> int:
        """Measured steps."""
        return sum(block.steps for block in self.blocks)

    @property
    def seconds(self) -> float:
        """Their duration."""
        return sum(block.seconds for block in self.blocks)

    @property
    def steady_s(self) -> float:
        """From one batch to the next, once workers have started."""
        return self.seconds / max(self.steps, 1)

    @property
    def period_s(self) -> float:
        """From one batch to the next."""
        return self.steady_s + self.start_s

    @property
    def median_s(self) -> float:
        """Like `period_s`, but a few slow parts of the window hardly count."""
        return statistics.median(block.period_s for block in self.blocks) + self.start_s

    @property
    def step_s(self) -> float:
        """Training alone, without waiting."""
        return max(self.steady_s - self.wait_s, 0.0)

    @property
    def wait_share(self) -> float:
        """Time inside ``next()`` over step time."""
        return min(self.wait_s / self.steady_s, 1.0) if self.seconds > 0 else 0.0

    @property
    def error_s(self) -> float:
        """Half the width of the interval around `period_s`."""
        return _error_s(self.blocks)


def _error_s(blocks: Sequence[Block]) -> float:
    """Half the width of the 95 % interval of the time per step, from blocks of any lengths."""
    count, steps = len(blocks), sum(block.steps for block in blocks)
    period_s = sum(block.seconds for block in blocks) / max(steps, 1)
    if count < 2:
        return _LONE_ERROR * period_s
    squares = sum((block.seconds - period_s * block.steps) ** 2 for block in blocks)
    return t95(count - 1) * math.sqrt(squares * count / (count - 1)) / steps


class _Step(NamedTuple):
    loop_s: float
    wait_s: float


class WindowCollector:
    """Collects one window, batch by batch, over as many epochs as it takes.

    Batches that fill the pipeline are left out. If an epoch is too short to show a burst after that, the
    whole epoch counts, with the start of its workers.
    """

    def __init__(self, settings: LoaderSettings, pace: WindowPace) -> None:
        self.settings = settings
        self.spent_steps = 0
        self.spent_s = 0.0
        self._pace = pace
        self._cycle = max(settings.num_workers, 1)
        self._skip = 0
        self._seek = 0
        """Batches within which measuring starts even if the queue is never drained."""
        self._filled_s, self._filled = 0.0, 0
        self._last: float | None = None
        self._is_measuring = True
        self._whole = False
        self._synced = False
        """The open burst began when the queue was drained."""
        self._open: list[_Step] = []
        """Steps since the last burst ended."""
        self._closed: list[list[_Step]] = []
        self._closed_s = 0.0
        self._next_check_s = pace.min_s
        self._epoch: list[_Step] | None = None
        """Steps of the epoch under way, if it began under these settings."""
        self._epoch_at = 0.0
        self._epochs: list[list[_Step]] = []

    @property
    def is_measuring(self) -> bool:
        """Whether the pipeline is full, so that the next step counts."""
        return self._last is not None and self._is_measuring

    @property
    def first_wait_s(self) -> float | None:
        """The wait for the first batch of this epoch, if it began under these settings."""
        return self._epoch[0].wait_s if self._epoch else None

    @property
    def steps(self) -> int:
        """Steps since measuring began."""
        return sum(map(len, self._closed)) + len(self._open)

    def begin(self, skip: int) -> None:
        """Workers have started: leave out the first `skip` batches, then wait until the queue is drained."""
        self._skip, self._seek = skip, self.settings.in_flight + 1 if skip and self._cycle > 1 else 0
        self._filled_s, self._filled = 0.0, 0
        self._last = None
        self._is_measuring, self._synced = skip == 0, False
        self._open = []

    def begin_epoch(self, at: float, *, whole: bool = False) -> None:
        """An epoch begins under these settings; `whole`: it is too short to measure its bursts."""
        self._whole = whole
        self._epoch, self._last = [], None
        self._open = []
        self._epoch_at = at

    def interrupt(self) -> None:
        """The step under way does not count: an exception was raised."""
        self._last, self._epoch = None, None

    def add(self, asked: float, got: float) -> StepWindow | None:
        """Add a batch, asked for and received at these seconds; return the window when it is complete."""
        last, self._last = self._last, got
        self.spent_steps += 1
        if self._epoch is not None:
            # The start of an epoch is part of the wait for its first batch.
            self._epoch.append(
                _Step(asked - last, got - asked)
                if last is not None and self._epoch
                else _Step(0.0, got - self._epoch_at)
            )
        if last is None:
            self._skip = max(self._skip - 1, 0)
            return None
        self.spent_s += got - last
        if self._whole:
            return None
        step = _Step(asked - last, got - asked)
        if not self._is_measuring:
            self._fill(step)
            return None
        self._open.append(step)
        if self._is_burst(step):
            self._closed.append(self._open)
            self._closed_s += _seconds(self._open)
            self._open = []
            return self._window_if_long_enough()
        return None

    @property
    def epoch_steps(self) -> int:
        """Batches of this epoch so far, if it began under these settings."""
        return len(self._epoch or ())

    def end_epoch(self, at: float) -> StepWindow | None:
        """The epoch is over; return the window if there have been enough."""
        epoch, last, self._epoch = self._epoch, self._last, None
        self._last, self._open = None, []
        if not epoch or last is None:
            return None
        self._epochs.append([*epoch, _Step(at - last, 0.0)])
        if len(self._epochs) < _ENOUGH_EPOCHS:
            is_enough = not self._closed and sum(map(_seconds, self._epochs)) >= self._pace.max_s
        else:
            is_enough = not self._closed or self.spent_s >= self._pace.min_s
        return self.so_far() if is_enough else None

    def so_far(self) -> StepWindow | None:
        """A window of the bursts up to now, or of whole epochs, which have fewer; None without either."""
        if len(self._closed) >= _MIN_BLOCKS:
            return self._window(self._closed, whole_epochs=False)
        return self._window(self._epochs, whole_epochs=True) if self._epochs else None

    def _fill(self, step: _Step) -> None:
        """Leave a batch out; measuring begins after this one if it shows that the queue is drained."""
        self._filled += 1
        self._filled_s += step.loop_s + step.wait_s
        if self._skip > 0:
            self._skip -= 1
            if self._skip > 0 or self._seek > 0:
                return
        else:
            self._seek -= 1
        self._synced = step.wait_s > _DRAINED * self._filled_s / self._filled
        self._is_measuring = self._synced or self._seek <= 0

    def _is_burst(self, step: _Step) -> bool:
        """Whether what is open ends with this batch: a batch per worker at least, and the queue drained."""
        count, period_s = len(self._open), _seconds(self._open) / len(self._open)
        if step.wait_s > _DRAINED * period_s:
            if not self._synced and not self._closed and self._cycle > 1:
                self._open, self._synced = [], True  # it began in the middle of a burst
            return count >= self._cycle and bool(self._open)
        if count % self._cycle:
            return False
        waited = any(one.wait_s > _DRAINED * period_s for one in self._open[-self._cycle :])
        return not waited or count >= 2 * self._cycle + self.settings.in_flight

    def _window_if_long_enough(self) -> StepWindow | None:
        if len(self._closed) < _MIN_BLOCKS or self._closed_s < self._next_check_s:
            return None
        self._next_check_s = min(self._closed_s * 1.3, self._pace.max_s)  # computing the error costs time
        if self._closed_s < self._pace.max_s:
            if self.steps < self._pace.min_steps:
                return None
            blocks = _merged(_durations(self._closed))
            if _error_s(blocks) > self._pace.error * self._closed_s / self.steps:
                return None
        return self._window(self._closed, whole_epochs=False)

    def _window(self, parts: Sequence[Sequence[_Step]], *, whole_epochs: bool) -> StepWindow:
        blocks = _durations(parts)
        waits = [step.wait_s for part in parts for step in part]
        steps = sum(block.steps for block in blocks)
        if whole_epochs:  # an epoch of n batches has n + 1 entries: its end is one
            blocks = [Block(block.steps - 1, block.seconds) for block in blocks]
            steps -= len(blocks)
        merged = tuple(blocks if whole_epochs else _merged(blocks))
        return StepWindow(self.settings, merged, sum(waits) / steps, whole_epochs=whole_epochs)


def _seconds(steps: Sequence[_Step]) -> float:
    return sum(step.loop_s + step.wait_s for step in steps)


def _durations(parts: Sequence[Sequence[_Step]]) -> list[Block]:
    """The parts' steps and seconds, with pauses of the training loop cut to a usual step."""
    loops = [step.loop_s for part in parts for step in part]
    usual = statistics.median(loops)
    limit = max(_OUTLIER * usual, 0.001)
    if sum(loop > limit for loop in loops) > max(_OUTLIER_SHARE * len(loops), 1):
        limit = math.inf
    return [
        Block(len(part), sum(one.wait_s + (one.loop_s if one.loop_s <= limit else usual) for one in part))
        for part in parts
    ]


def _merged(blocks: Sequence[Block]) -> list[Block]:
    """At most ten blocks, of neighbouring bursts; what is left over joins the last."""
    size = math.ceil(len(blocks) / _MAX_BLOCKS)
    starts = list(range(0, len(blocks) - size + 1, size))
    groups = [blocks[n : n + size] for n in starts[:-1]] + [blocks[starts[-1] :]]
    return [Block(sum(b.steps for b in group), sum(b.seconds for b in group)) for group in groups]
