"""Which settings are tried, in which order, and what is concluded.

A search asks for one setting after the other and is told how training went under each; it knows no clock, no
process and no loader. The user's own settings stay unless others are faster by more than the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

from unstarve.intervals import WORTH_SWITCHING
from unstarve.model import Change, LoaderSettings
from unstarve.tune.aim import (
    CONTENT,
    is_at_its_best,
    is_content,
    is_crowded,
    none_may_do,
    wanted_workers,
)
from unstarve.tune.machine import Machine
from unstarve.tune.race import AS_GOOD, Race, compared, is_worth_it
from unstarve.tune.window import Window, price_of

_DEPTH = 2
"""torch's own default."""
_DEEP = 8
_JUMPS = 4
_REFINEMENTS = 3
_NEAR = 0.92
"""Of the best speed in one window: a setting that reaches it may be the best."""
_FINALISTS = 2

Asking = Generator[LoaderSettings, Window, LoaderSettings]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a search may ask for."""

    machine: Machine
    fits: Callable[[LoaderSettings], bool] = lambda settings: True
    """Whether there is memory for a setting."""
    workers: bool = True
    """Their number may change."""
    none: bool = True
    """Batches may be made without workers where the user has some."""
    several: bool = True
    """There may be more than one worker where the user has at most one."""
    images: bool = False
    """Those of an image folder may be read by unstarve."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search concludes."""

    chosen: LoaderSettings
    gain: Change | None
    reason: str


class Search:
    """One search. `run` asks; `conclude` says at any time what is known so far."""

    def __init__(self, own: LoaderSettings, present: LoaderSettings, bounds: Bounds) -> None:
        self.own = own
        self._present = present
        self._bounds = bounds
        self._images = present.images
        """What is tried now is with images read by unstarve."""
        self._windows: dict[LoaderSettings, list[Window]] = {}
        self._content: LoaderSettings | None = None
        """Settings under which training hardly waits."""
        self._race: Race | None = None

    def run(self) -> Generator[LoaderSettings, Window, Found]:
        """Ask for settings, one at a time; a window of each is to be sent. Returns what was found."""
        first = yield from self._try(self._present)
        if is_content(first, self._bounds.machine):
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
        """As `best`, also while nothing is measured."""
        if self._race is not None and self._race.has_begun:
            return self._race.best
        return self.best if self._windows else self._present

    @property
    def best(self) -> LoaderSettings:
        """The smallest setting that was about as fast as the fastest."""
        fastest = min(self._period_s(settings) for settings in self._windows)
        as_good = [one for one in self._windows if fastest / self._period_s(one) >= AS_GOOD]
        return min(as_good, key=lambda one: (one.num_workers, one.prefetch_factor or 0))

    def conclude(self) -> Found:
        """Say which settings to use: the user's own unless others were shown to be faster."""
        own, best = self.own, self.best_so_far if self._windows else self.own
        if self._content is not None:
            waits = f"{self._windows[self._content][-1].wait_share:.0%}"
            return Found(
                self._content, self._gain(self._content), f"training waits for data {waits} of its time"
            )
        gain = self._gain(best)
        if gain is None and best != own:
            return Found(own, None, "too little was measured to tell")
        if gain is None or gain.ratio < WORTH_SWITCHING:
            return Found(own, None, "nothing that was tried is faster")
        if is_worth_it(gain):
            return Found(best, gain, f"{gain.ratio:.2f}× as fast as your own settings")
        return Found(own, gain, "what is gained elsewhere is within the noise")

    # --- what is tried ---

    def _try(self, settings: LoaderSettings) -> Generator[LoaderSettings, Window, Window]:
        window = yield settings
        self._windows.setdefault(settings, []).append(window)
        return window

    def _try_to_go_back(self) -> Generator[LoaderSettings, Window, None]:
        """What an earlier search chose may be needed no more: a cache has become warm."""
        if self._present != self.own:
            window = yield from self._try(self.own)
            if is_content(window, self._bounds.machine):
                self._content = self.own

    def _try_workers(self, here: Window) -> Generator[LoaderSettings, Window, None]:
        """Jump to where the last window points, then look around the best."""
        machine = self._bounds.machine
        for _ in range(_JUMPS):
            if is_at_its_best(here, machine):
                break
            aimed = int(machine.cores) if is_crowded(here, machine) else wanted_workers(here, machine)
            settings = self._settings(aimed)
            if settings is None or self._has_tried(settings.num_workers):
                break
            there = yield from self._try(settings)
            if there.period_s > AS_GOOD * here.period_s:
                break
            here = there
        if self._bounds.none and not self._images and not self._has_tried(0):
            yield from self._try_none()
        yield from self._look_around()

    def _try_none(self) -> Generator[LoaderSettings, Window, None]:
        """Make batches without workers where that may do; again where a few slow ones have spoilt it."""
        best_s = self._windows[self.best][-1].period_s
        # Each window tells: many workers keep each other waiting.
        if not any(none_may_do(windows[-1], best_s) for windows in self._windows.values()):
            return
        alone = yield from self._try(LoaderSettings(0))
        if alone.usual_s < best_s < alone.period_s:
            yield from self._try(LoaderSettings(0))

    def _try_images(self) -> Generator[LoaderSettings, Window, None]:
        """Let unstarve read the images, in a thread per core or per worker; then look around."""
        best = self._windows[self.best][-1]
        if is_content(best, self._bounds.machine):
            return
        self._images = True
        cores = max(int(self._bounds.machine.cores), 1)
        for count in (cores, max(cores, best.settings.num_workers)):
            settings = self._settings(count)
            if settings is not None and settings not in self._windows:
                yield from self._try(settings)
        if self.best.images:
            yield from self._look_around()
        self._images = self.best.images

    def _look_around(self) -> Generator[LoaderSettings, Window, None]:
        """More, then fewer workers than the best has, as long as that is better."""
        for change in (_more, _fewer):
            for _ in range(_REFINEMENTS):
                best = self._windows[self.best][-1]
                if change is _more and is_at_its_best(best, self._bounds.machine):
                    break
                settings = self._settings(change(best.settings.num_workers))
                if settings is None or self._has_tried(settings.num_workers):
                    break
                yield from self._try(settings)
                if self.best.makers != settings.makers:
                    break

    def _try_depths(self) -> Generator[LoaderSettings, Window, None]:
        """More batches ahead even out what takes long now and then; fewer take less memory."""
        best = self._windows[self.best][-1]
        count, depth = best.settings.num_workers, best.settings.prefetch_factor or 0
        if count == 0 or best.wait_share < CONTENT:
            return
        while depth < _DEEP:
            depth = _DEEP if depth == _DEPTH else min(depth * 2, _DEEP)
            settings = replace(best.settings, prefetch_factor=depth)
            while not self._bounds.fits(settings) and depth > 1:
                depth //= 2
                settings = replace(best.settings, prefetch_factor=depth)
            if settings in self._windows:
                return
            yield from self._try(settings)
            if self.best != settings:
                return

    def _try_in_turns(self) -> Generator[LoaderSettings, Window, None]:
        """The best, measured again and again beside the user's own settings, until it is clear who wins."""
        fastest = min(map(self._period_s, self._windows))
        near = [one for one in self._windows if one != self.own and fastest / self._period_s(one) >= _NEAR]
        if not near:
            return
        near.sort(key=self._period_s)
        self._race = Race(self.own, near[:_FINALISTS])
        asking = self._race.run()
        try:
            wanted = next(asking)
            while True:
                window = yield from self._try(wanted)
                wanted = asking.send(window)
        except StopIteration:
            return

    def _settings(self, count: int) -> LoaderSettings | None:
        """So many workers, or as many as there may be; None where none may."""
        bounds = self._bounds
        if count <= 0 and self._images:
            return None
        if count <= 0:
            return LoaderSettings(0) if bounds.none or self.own.num_workers == 0 else None
        count = min(count, bounds.machine.most_workers)
        if not bounds.several and self.own.num_workers <= 1:
            count = 1
        depth = self._present.prefetch_factor or _DEPTH
        while count > 0 and not bounds.fits(LoaderSettings(count, depth, self._images)):
            count = count * 3 // 4
        return LoaderSettings(count, depth, self._images) if count > 0 else None

    # --- what is known ---

    def _has_tried(self, count: int) -> bool:
        return any(settings.makers == (self._images, count) for settings in self._windows)

    def _period_s(self, settings: LoaderSettings) -> float:
        """By which settings are ranked."""
        return self._windows[settings][-1].period_s * price_of(settings)

    def _gain(self, settings: LoaderSettings) -> Change | None:
        """Against the user's own; None where they are the same, or were not both measured."""
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
