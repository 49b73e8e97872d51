"""Search over loader settings: choose the next one to try, decide when to stop, conclude.

A search yields one setting after another and is sent a `StepWindow` measured under each. It knows no clock,
no process and no loader. The user's own settings stay unless another is faster by more than the noise.

Where to look follows from a forecast made from each window: the search jumps to the best setting that the
forecast of the nearest measured setting points to, and looks around there. A forecast that turned out wrong,
or none, makes it look further around.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace

from unstarve.intervals import WORTH_SWITCHING
from unstarve.model import Change, LoaderSettings
from unstarve.model.parts import CACHED, GATHER, GPU_IMAGES, IMAGES, THREADS
from unstarve.tune.bounds import Bounds, fewer, more
from unstarve.tune.race import AS_GOOD, Race, compared, is_worth_it
from unstarve.tune.search_result import Predicted, SearchResult
from unstarve.tune.step_window import StepWindow
from unstarve.tune.untried import untried_parts, why_not_filled
from unstarve.tune.window_forecast import WindowForecast
from unstarve.tune.window_reading import (
    CONTENT,
    cores_are_full,
    costs_to_receive,
    is_content,
    is_crowded,
    is_optimal,
    limit_of,
)
from unstarve.words import percent, times

_DEFAULT_DEPTH = 2
"""torch's own default."""
_MAX_DEPTH = 8
_JUMPS = 5
_REFINEMENTS = 5
_PROMISING = 0.97
"""A setting is tried if it should take this share of the best time, or less."""
_NOT_WORSE = 1.02
"""A neighbour of the best is tried unless a forecast that held says that it takes this much longer."""
_HELD = 1.3
"""A forecast has held if it was wrong by less than this factor."""
_NEAR = 0.92
"""A setting that reaches this share of the best speed in one window may be the best."""
_FINALISTS = 2
_COSTLY_S = 1.5
"""Where a window takes this long, small gains are not looked for."""
_COUNTS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)

SearchSteps = Generator[LoaderSettings, StepWindow, None]
"""Yields settings to measure and is sent a window for each."""


class Search:
    """One search. `run` yields the settings to measure; `conclude` may be called at any time."""

    def __init__(
        self,
        own: LoaderSettings,
        present: LoaderSettings,
        bounds: Bounds,
        forecast: Callable[[StepWindow], WindowForecast | None] = lambda window: None,
    ) -> None:
        self.own = own
        self.predicted: Predicted | None = None
        self._present = present
        self._bounds = bounds
        self._forecast = forecast
        self._forecasts: dict[LoaderSettings, WindowForecast] = {}
        """Made from the last window of each setting."""
        self._tested, self._held = False, True
        """A forecast was compared with what was measured then; none was wrong so far."""
        self._windows: dict[LoaderSettings, list[StepWindow]] = {}
        self._content: LoaderSettings | None = None
        """Settings under which training hardly waits, if there are any."""
        self._race: Race | None = None
        self._left_out: dict[str, str] = {}
        """Parts that the search decided against, and why."""
        self._is_over = False

    def run(self) -> Generator[LoaderSettings, StepWindow, SearchResult]:
        """Yield settings to measure, one at a time, and return the conclusion. Send a window for each."""
        first = yield from self._try(self._present)
        if is_content(first, self._bounds.limits):
            self._content = self._present
            yield from self._try_to_go_back()
        else:
            if self._bounds.workers:
                yield from self._follow_forecasts()
                yield from self._look_around()
                yield from self._try_threads()
                yield from self._try_no_workers()
                yield from self._try_rows()
                yield from self._try_cached()
            yield from self._try_depths()
            yield from self._try_in_turns()
        self._is_over = True
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
        fastest = min(self._rank_s(settings) for settings in self._windows)
        as_good = [one for one in self._windows if fastest / self._rank_s(one) >= AS_GOOD]
        return min(as_good, key=lambda one: (one.num_workers, one.prefetch_factor or 0))

    def conclude(self) -> SearchResult:
        """Choose settings: the user's own unless others were shown to be faster."""
        own, best = self.own, self.best_so_far if self._windows else self.own
        if self._content is not None:
            waits = percent(self._windows[self._content][-1].wait_share)
            reason = f"training waits for data {waits} of its time: only faster steps would help"
            gain, steps = self._gain(self._content)
            return SearchResult(self._content, gain, reason, steps)
        gain, steps = self._gain(best)
        if (gain is None and best != own) or not self._windows:
            return SearchResult(own, None, "too little was measured to tell")
        if gain is not None and is_worth_it(gain):
            reason = f"{times(gain.ratio, 2)} as fast as your own settings"
            return SearchResult(best, gain, reason, steps)
        if len(self._windows) == 1:
            return SearchResult(own, None, "no other setting was tried")
        others = len(self._windows) - 1
        limit = limit_of(self._windows[self.best][-1], self._bounds.limits) or (
            "the other setting is not faster" if others == 1 else f"none of {others} other settings is faster"
        )
        if gain is not None and gain.ratio >= WORTH_SWITCHING:
            limit = "the gain of other settings is within the noise"
        return SearchResult(own, gain, limit, steps)

    @property
    def untried(self) -> tuple[str, ...]:
        """The parts that were not tried (so far), and why."""
        if not self._windows:
            return ()
        last = [windows[-1] for windows in self._windows.values()]
        best = self._windows[self._content or self.best][-1]
        return untried_parts(self._bounds, last, best, self._left_out, is_over=self._is_over)

    # --- what to try ---

    def _try(self, settings: LoaderSettings) -> Generator[LoaderSettings, StepWindow, StepWindow]:
        nearest, foretold = self._nearest(settings), self._predicted_s(settings)
        self._left_out[settings.part] = "training ended before it was measured"
        window = yield settings
        del self._left_out[settings.part]
        self._windows.setdefault(settings, []).append(window)
        # What a part gains was only a guess until it was tried.
        if nearest is not None and foretold is not None and nearest.part == settings.part:
            self._tested = True
            self._held = self._held and 1 / _HELD < window.period_s / foretold < _HELD
            self.predicted = self.predicted if self._held else None
        forecast = self._forecast(window)
        if forecast is not None:
            self._forecasts[settings] = forecast
        return window

    def _try_to_go_back(self) -> SearchSteps:
        """The choice of an earlier search may no longer be needed, for example once a cache is warm."""
        if self._present != self.own:
            window = yield from self._try(self.own)
            if is_content(window, self._bounds.limits):
                self._content = self.own

    def _follow_forecasts(self) -> SearchSteps:
        """Jump to the setting that the forecasts point to, as long as one promises more than was measured."""
        here = self._windows[self._present][-1]
        fewer = self._settings(max(int(self._bounds.limits.cores), 1), self._present)
        if is_crowded(here, self._bounds.limits) and fewer is not None:
            yield from self._try(fewer)
        for _ in range(_JUMPS):
            foretold = {one: self._predicted_s(one) for one in self._candidates()}
            known = {one: period_s * one.price for one, period_s in foretold.items() if period_s is not None}
            if not known:
                return
            if self._held:
                self._note_predicted({one: foretold[one] or 0.0 for one in known})
            untried = {one: rank_s for one, rank_s in known.items() if one not in self._windows}
            goal_s = min(untried.values(), default=math.inf)
            if goal_s > self._promising * self._rank_s(self.best):
                return
            near = [one for one, rank_s in untried.items() if goal_s / rank_s >= AS_GOOD]
            before, before_s = self.best, self._rank_s(self.best)
            aimed = min(near)
            yield from self._try(aimed)
            if self._rank_s(aimed) > AS_GOOD * before_s and before.part == aimed.part:
                return

    def _candidates(self) -> Iterator[LoaderSettings]:
        """All settings that a forecast is asked about."""
        cores = max(int(self._bounds.limits.cores), 1)
        counts = sorted({*_COUNTS, cores, self._bounds.limits.max_workers})
        # A cache is tried last: an epoch has to fill it.
        kinds = [LoaderSettings(1, part=part) for part in ("", *self._bounds.parts) if part != CACHED]
        found = {self._settings(count, kind) for kind in kinds for count in counts}
        return iter(sorted(one for one in found if one is not None))

    def _note_predicted(self, foretold: dict[LoaderSettings, float]) -> None:
        own = self._windows.get(self.own)
        best = min(foretold, key=lambda one: foretold[one] * one.price)
        source = self._nearest(best)
        if own is None or best == self.own or source is None:
            return
        doubt = self._forecasts[source].doubt(best)
        ratio = own[-1].period_s / foretold[best]
        self.predicted = Predicted(best, Change(ratio, ratio / doubt, ratio * doubt, shown=False))

    def _try_no_workers(self) -> SearchSteps:
        """Try without workers if handing over may be what takes long; again if slow batches spoilt it."""
        none = self._settings(0, LoaderSettings(0))
        if none is None or self.best.threads:
            return
        costs = any(costs_to_receive(windows[-1]) for windows in self._windows.values())
        if none not in self._windows and costs:
            yield from self._try(none)
        seen = self._windows.get(none, [])
        if len(seen) == 1 and seen[0].median_s < self._rank_s(self.best) < seen[0].period_s:
            yield from self._try(none)

    def _try_threads(self) -> SearchSteps:
        """Let threads of unstarve read, one per core: images wherever training still waits.

        What they gain is much, and a guess until the cores and a GPU were both measured. Other readers are
        left out if a forecast that held promises nothing from them.
        """
        for part in (IMAGES, GPU_IMAGES, THREADS):
            settings = self._settings(max(int(self._bounds.limits.cores), 1), LoaderSettings(1, part=part))
            if part not in self._bounds.parts or settings is None or settings in self._windows:
                continue
            waits = not is_content(self._windows[self.best][-1], self._bounds.limits)
            if (settings.shared and waits) or not (self._knows or self.best.part):
                yield from self._try(settings)
                if self.best == settings:
                    yield from self._look_around()

    def _try_rows(self) -> SearchSteps:
        """Gather rows that are in memory, whatever a forecast says: that takes next to no time."""
        settings = self._settings(0, LoaderSettings(0, part=GATHER))
        if GATHER in self._bounds.parts and settings is not None and settings not in self._windows:
            yield from self._try(settings)

    def _try_cached(self) -> SearchSteps:
        """Keep samples in memory, with the workers that are best without that, and without workers."""
        best = self.best
        if CACHED not in self._bounds.parts or self._windows[best][-1].wait_share < CONTENT:
            return
        period_s, alone = self._windows[best][-1].period_s, LoaderSettings(0)
        alone_s = self._rank_s(alone) if alone in self._windows else self._predicted_s(alone)
        # The cache is filled by those who are tried, and again by a training that uses these settings.
        takes_s = {best.num_workers: period_s, 0: alone_s or period_s * max(best.num_workers, 1)}
        for count, batch_s in takes_s.items():
            settings = self._settings(count, LoaderSettings(1, part=CACHED))
            if settings is None or settings in self._windows or not self._is_cache_worth_it(settings):
                continue
            has_cache = any(one.part == CACHED for one in self._windows)
            why_not = why_not_filled(self._bounds.epoch(), batch_s)
            if why_not is None and not has_cache:
                why_not = self._bounds.prepare(CACHED)
            if why_not is None:
                yield from self._try(settings)
            elif not has_cache:
                self._left_out[CACHED] = why_not
                return

    def _is_cache_worth_it(self, settings: LoaderSettings) -> bool:
        best = self.best
        foretold = self._predicted_s(settings)
        is_promising = foretold is None or foretold * settings.price <= self._promising * self._rank_s(best)
        return is_promising or best.part == CACHED

    @property
    def _promising(self) -> float:
        """The share of the best time from which a setting is worth a trial."""
        return _NEAR if self._is_costly else _PROMISING

    @property
    def _is_costly(self) -> bool:
        best = self._windows[self.best][-1]
        return best.whole_epochs or best.seconds > _COSTLY_S

    def _look_around(self) -> SearchSteps:
        """Try more, then fewer workers than the best has, as long as that helps."""
        for change in (more, fewer):
            for _ in range(_REFINEMENTS):
                best = self.best
                if change is more and is_optimal(self._windows[best][-1], self._bounds.limits):
                    break
                settings = self._settings(change(best.num_workers, wide=not self._knows), best)
                if settings is None or self._has_tried(settings) or not self._may_help(settings):
                    break
                yield from self._try(settings)
                if self.best.makers != settings.makers:
                    break

    @property
    def _knows(self) -> bool:
        """There are forecasts, and they have held: one that promises nothing is put to the test, too."""
        return self._held and self._tested

    def _may_help(self, settings: LoaderSettings) -> bool:
        foretold = self._predicted_s(settings) if self._knows else None
        limit = self._promising if self._is_costly else _NOT_WORSE
        return foretold is None or foretold * settings.price <= limit * self._rank_s(self.best)

    def _try_depths(self) -> SearchSteps:
        """Try deeper prefetching, which evens out batches that take long now and then."""
        best = self._windows[self.best][-1]
        count, depth = best.settings.num_workers, best.settings.prefetch_factor or 0
        if count == 0 or best.wait_share < CONTENT or cores_are_full(best, self._bounds.limits):
            return
        if best.whole_epochs:  # hardly longer than what is ahead already
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
        fastest = min(map(self._rank_s, self._windows))
        near = [one for one in self._windows if one != self.own and fastest / self._rank_s(one) >= _NEAR]
        if not near:
            return
        near.sort(key=self._rank_s)
        if self._is_costly:
            near = [self.best] if self.best in near else near[:1]
        seen = {one: windows[-1] for one, windows in self._windows.items()}
        self._race = Race(self.own, near[:_FINALISTS], seen)
        steps = self._race.run()
        try:
            wanted = next(steps)
            while True:
                window = yield from self._try(wanted)
                wanted = steps.send(window)
        except StopIteration:
            return

    def _settings(self, count: int, kind: LoaderSettings) -> LoaderSettings | None:
        depth = self._present.prefetch_factor or _DEFAULT_DEPTH
        return self._bounds.setting(count, replace(kind, prefetch_factor=depth), self.own)

    # --- what was measured and predicted ---

    def _has_tried(self, settings: LoaderSettings) -> bool:
        return any(one.makers == settings.makers for one in self._windows)

    def _rank_s(self, settings: LoaderSettings) -> float:
        """Settings are ranked by this."""
        return self._windows[settings][-1].period_s * settings.price

    def _nearest(self, settings: LoaderSettings) -> LoaderSettings | None:
        """The setting whose forecast is asked: of the same part, with the most similar number of workers."""
        return min(
            self._forecasts,
            key=lambda one: (
                one.part != settings.part,
                bool(one.part),
                abs(math.log((one.num_workers + 1) / (settings.num_workers + 1))),
            ),
            default=None,
        )

    def _predicted_s(self, settings: LoaderSettings) -> float | None:
        """The predicted time per step; None without a forecast."""
        nearest = self._nearest(settings)
        return None if nearest is None else self._forecasts[nearest].period_s(settings)

    def _gain(self, settings: LoaderSettings) -> tuple[Change | None, int]:
        """Over the user's own settings, and the steps behind it; None if not both were measured."""
        if settings == self.own:
            return None, 0
        own, other = self._windows.get(self.own, []), self._windows.get(settings, [])
        if not own or not other:
            return None, 0
        if self._race is not None and self._race.has_begun:
            return self._race.gain(self.own, settings), sum(one.steps for one in (*own, *other))
        return compared(own[-1:], other[-1:]), own[-1].steps + other[-1].steps
