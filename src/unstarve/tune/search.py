"""Search over loader settings: choose the next one to try, decide when to stop, conclude.

A search yields one setting after another and is sent a `StepWindow` measured under each. It knows no clock,
no process and no loader. The user's own settings stay unless another is faster by more than the noise.

Where to look follows from the windows. Waiting for storage or network needs no core, so it scales with the
number of workers; CPU work scales with the cores. The CPU time spent meanwhile tells them apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

from unstarve.intervals import WORTH_SWITCHING
from unstarve.model import Change, LoaderSettings
from unstarve.tune.race import AS_GOOD, Race, compared, is_worth_it
from unstarve.tune.step_window import StepWindow, price_of
from unstarve.words import percent, times

_CONTENT = 0.03
"""A share of waiting below this is not worth a search."""
_CROWDED = 0.85
"""With more workers than cores, and this share of the cores in use, workers may be in each other's way."""
_BUSY = 0.6
"""A process that spends this share of its time on a CPU holds the others up."""
_CHEAP_S = 0.03
"""If a worker makes a batch in this time, a trial without workers costs next to nothing."""
_MAX_HANDOFF = 0.95
"""The hand-off may take up to this share of a worker's CPU time: new shared memory is slow."""
_DEFAULT_DEPTH = 2
"""torch's own default."""
_MAX_DEPTH = 8
_JUMPS = 4
_REFINEMENTS = 3
_NEAR = 0.92
"""A setting that reaches this share of the best speed in one window may be the best."""
_FINALISTS = 2

SearchSteps = Generator[LoaderSettings, StepWindow, None]
"""Yields settings to measure and is sent a window for each."""


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """What limits the number of workers."""

    cores: float
    max_workers: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which settings a search may ask for."""

    limits: WorkerLimits
    fits: Callable[[LoaderSettings], bool] = lambda settings: True
    """Whether there is memory for a setting."""
    workers: bool = True
    """The number of workers may change."""
    no_workers: bool = True
    """It may become 0 if the user has some."""
    several_workers: bool = True
    """It may become more than 1 if the user has at most one."""
    images: bool = False
    """unstarve may read the images of an image folder."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The settings to use, and why."""

    chosen: LoaderSettings
    gain: Change | None
    reason: str


class Search:
    """One search. `run` yields the settings to measure; `conclude` may be called at any time."""

    def __init__(self, own: LoaderSettings, present: LoaderSettings, bounds: Bounds) -> None:
        self.own = own
        self._present = present
        self._bounds = bounds
        self._images = present.images
        """Whether the settings tried now read images with unstarve."""
        self._windows: dict[LoaderSettings, list[StepWindow]] = {}
        self._content: LoaderSettings | None = None
        """Settings under which training hardly waits, if there are any."""
        self._race: Race | None = None

    def run(self) -> Generator[LoaderSettings, StepWindow, SearchResult]:
        """Yield settings to measure, one at a time, and return the conclusion. Send a window for each."""
        first = yield from self._try(self._present)
        if is_content(first, self._bounds.limits):
            self._content = self._present
            yield from self._try_to_go_back()
        else:
            if self._bounds.workers:
                yield from self._try_workers(first)
            if self._bounds.images and not self._images:
                yield from self._try_images()
            yield from self._try_depths()
            yield from self._try_in_turns()
        return self.conclude()

    @property
    def best_so_far(self) -> LoaderSettings:
        """Like `best`, but also defined before anything was measured."""
        if self._race is not None and self._race.has_begun:
            return self._race.best
        return self.best if self._windows else self._present

    @property
    def best(self) -> LoaderSettings:
        """The smallest setting that was about as fast as the fastest one."""
        fastest = min(self._period_s(settings) for settings in self._windows)
        as_good = [one for one in self._windows if fastest / self._period_s(one) >= AS_GOOD]
        return min(as_good, key=lambda one: (one.num_workers, one.prefetch_factor or 0))

    def conclude(self) -> SearchResult:
        """Choose settings: the user's own unless others were shown to be faster."""
        own, best = self.own, self.best_so_far if self._windows else self.own
        if self._content is not None:
            waits = percent(self._windows[self._content][-1].wait_share)
            return SearchResult(
                self._content, self._gain(self._content), f"training waits for data {waits} of its time"
            )
        gain = self._gain(best)
        if gain is None and best != own:
            return SearchResult(own, None, "too little was measured to tell")
        if gain is None or gain.ratio < WORTH_SWITCHING:
            return SearchResult(own, None, "no faster setting was found")
        if is_worth_it(gain):
            return SearchResult(best, gain, f"{times(gain.ratio, 2)} as fast as your own settings")
        return SearchResult(own, gain, "the gain of other settings is within the noise")

    # --- what to try ---

    def _try(self, settings: LoaderSettings) -> Generator[LoaderSettings, StepWindow, StepWindow]:
        window = yield settings
        self._windows.setdefault(settings, []).append(window)
        return window

    def _try_to_go_back(self) -> SearchSteps:
        """The choice of an earlier search may no longer be needed, for example once a cache is warm."""
        if self._present != self.own:
            window = yield from self._try(self.own)
            if is_content(window, self._bounds.limits):
                self._content = self.own

    def _try_workers(self, here: StepWindow) -> SearchSteps:
        """Jump to the number of workers that the last window points to, then look around the best."""
        limits = self._bounds.limits
        for _ in range(_JUMPS):
            if is_optimal(here, limits):
                break
            aimed = int(limits.cores) if is_crowded(here, limits) else workers_needed(here, limits)
            settings = self._settings(aimed)
            if settings is None or self._has_tried(settings.num_workers):
                break
            there = yield from self._try(settings)
            if there.period_s > AS_GOOD * here.period_s:
                break
            here = there
        if self._bounds.no_workers and not self._images and not self._has_tried(0):
            yield from self._try_no_workers()
        yield from self._look_around()

    def _try_no_workers(self) -> SearchSteps:
        """Try without workers if that could be faster; again if a few slow batches spoilt the first try."""
        best_s = self._windows[self.best][-1].period_s
        # Any window may show it: many workers can slow each other down.
        if not any(may_drop_workers(windows[-1], best_s) for windows in self._windows.values()):
            return
        in_process = yield from self._try(LoaderSettings(0))
        if in_process.median_s < best_s < in_process.period_s:
            yield from self._try(LoaderSettings(0))

    def _try_images(self) -> SearchSteps:
        """Let unstarve read the images, with a thread per core or per worker; then look around."""
        best = self._windows[self.best][-1]
        if is_content(best, self._bounds.limits):
            return
        self._images = True
        cores = max(int(self._bounds.limits.cores), 1)
        for count in (cores, max(cores, best.settings.num_workers)):
            settings = self._settings(count)
            if settings is not None and settings not in self._windows:
                yield from self._try(settings)
        if self.best.images:
            yield from self._look_around()
        self._images = self.best.images

    def _look_around(self) -> SearchSteps:
        """Try more, then fewer workers than the best has, as long as that helps."""
        for change in (_more, _fewer):
            for _ in range(_REFINEMENTS):
                best = self._windows[self.best][-1]
                if change is _more and is_optimal(best, self._bounds.limits):
                    break
                settings = self._settings(change(best.settings.num_workers))
                if settings is None or self._has_tried(settings.num_workers):
                    break
                yield from self._try(settings)
                if self.best.makers != settings.makers:
                    break

    def _try_depths(self) -> SearchSteps:
        """Try deeper prefetching, which evens out batches that take long now and then."""
        best = self._windows[self.best][-1]
        count, depth = best.settings.num_workers, best.settings.prefetch_factor or 0
        if count == 0 or best.wait_share < _CONTENT:
            return
        while depth < _MAX_DEPTH:
            depth = _MAX_DEPTH if depth == _DEFAULT_DEPTH else min(depth * 2, _MAX_DEPTH)
            settings = replace(best.settings, prefetch_factor=depth)
            while not self._bounds.fits(settings) and depth > 1:
                depth //= 2
                settings = replace(best.settings, prefetch_factor=depth)
            if settings in self._windows:
                return
            yield from self._try(settings)
            if self.best != settings:
                return

    def _try_in_turns(self) -> SearchSteps:
        """Measure the best and the user's own settings in turns until the winner is clear."""
        fastest = min(map(self._period_s, self._windows))
        near = [one for one in self._windows if one != self.own and fastest / self._period_s(one) >= _NEAR]
        if not near:
            return
        near.sort(key=self._period_s)
        self._race = Race(self.own, near[:_FINALISTS])
        steps = self._race.run()
        try:
            wanted = next(steps)
            while True:
                window = yield from self._try(wanted)
                wanted = steps.send(window)
        except StopIteration:
            return

    def _settings(self, count: int) -> LoaderSettings | None:
        """This many workers, or as many as are allowed; None if none are."""
        bounds = self._bounds
        if count <= 0 and self._images:
            return None
        if count <= 0:
            return LoaderSettings(0) if bounds.no_workers or self.own.num_workers == 0 else None
        count = min(count, bounds.limits.max_workers)
        if not bounds.several_workers and self.own.num_workers <= 1:
            count = 1
        depth = self._present.prefetch_factor or _DEFAULT_DEPTH
        while count > 0 and not bounds.fits(LoaderSettings(count, depth, self._images)):
            count = count * 3 // 4
        return LoaderSettings(count, depth, self._images) if count > 0 else None

    # --- what was measured ---

    def _has_tried(self, count: int) -> bool:
        return any(settings.makers == (self._images, count) for settings in self._windows)

    def _period_s(self, settings: LoaderSettings) -> float:
        """Settings are ranked by this."""
        return self._windows[settings][-1].period_s * price_of(settings)

    def _gain(self, settings: LoaderSettings) -> Change | None:
        """Over the user's own settings; None if they are the same, or not both were measured."""
        if settings == self.own:
            return None
        if self._race is not None and self._race.has_begun:
            return self._race.gain(self.own, settings)
        own, other = self._windows.get(self.own), self._windows.get(settings)
        return None if not own or not other else compared(own[-1:], other[-1:])


def _more(count: int) -> int:
    return count + 1 if count < 3 else math.ceil(count * 1.5)


def _fewer(count: int) -> int:
    return count - 1 if count <= 3 else count * 2 // 3


# --- reading a window ---


def fastest_possible_s(window: StepWindow, limits: WorkerLimits) -> float:
    """The shortest time per step that more workers could lead to: training alone, or all cores busy."""
    return max(window.step_s, (window.cpu_s or 0.0) / limits.cores)


def workers_needed(window: StepWindow, limits: WorkerLimits) -> int:
    """How many workers it would take if each did as well as those that were measured."""
    count = window.settings.num_workers
    busy_s = window.wait_s if count == 0 else count * window.period_s
    goal_s = max(fastest_possible_s(window, limits), 1e-6)
    return min(max(math.ceil(busy_s / goal_s - 0.05), 1), limits.max_workers)


def is_content(window: StepWindow, limits: WorkerLimits) -> bool:
    """Whether training hardly waits, and workers do not take its cores either."""
    return (
        window.wait_share < _CONTENT
        and window.start_s < _CONTENT * window.period_s
        and not is_crowded(window, limits)
    )


def is_crowded(window: StepWindow, limits: WorkerLimits) -> bool:
    """Whether there are more workers than cores, and no core to spare."""
    busy = (window.cpu_s or 0.0) / max(window.period_s, 1e-9)
    return window.settings.num_workers > limits.cores and busy > _CROWDED * limits.cores


def is_optimal(window: StepWindow, limits: WorkerLimits) -> bool:
    """Whether no number of workers could be much faster."""
    goal_s = fastest_possible_s(window, limits)
    return window.period_s <= (1 + _CONTENT) * goal_s and not is_crowded(window, limits)


def may_drop_workers(window: StepWindow, best_s: float) -> bool:
    """Whether making batches one after another, without workers, could beat `best_s` per step."""
    count, workers_s = window.settings.num_workers, window.workers_cpu_s
    if count == 0:
        return False
    busy_s = count * window.period_s  # includes waiting for a core, which a single process would not do
    if workers_s is None or window.cpu_s is None:
        return busy_s <= _CHEAP_S
    if window.step_s + (1 - _MAX_HANDOFF) * workers_s >= best_s:
        return False
    main_is_busy = window.cpu_s - workers_s > _BUSY * window.period_s  # receiving: workers wait for it
    return main_is_busy or busy_s <= _CHEAP_S or busy_s - workers_s <= 2 * best_s
