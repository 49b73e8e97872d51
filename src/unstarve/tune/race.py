"""A race between the last few settings: measured in turns until it is clear which one is fastest.

Disturbances of a machine last for seconds, longer than a window. Two windows right after each other share
most of them, two that are far apart do not. So only windows of the same round are compared.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Generator, Mapping, Sequence

from unstarve.intervals import SINGLE_ERROR, USUAL_ERROR, WORTH_SWITCHING, t95, turn_order
from unstarve.model import Change, LoaderSettings
from unstarve.tune.step_window import StepWindow

AS_GOOD = 0.98
"""A setting that reaches this share of the best speed with fewer workers is preferred."""
_MIN_ROUNDS = 2
"""One pair of windows is not enough to report a gain."""
_MAX_ROUNDS = 6
_MAX_ROUNDS_WITHOUT_OWN = 3
"""Which of the others is best matters less than whether it beats the user's own settings."""
_DUEL_FROM = 3
"""From this round on only the best of the others still runs against the user's own."""
_GIVE_UP_FROM = 4
"""From this round on a mean gain that would not be worth a change ends the race."""
_PLAIN = 1.3
"""If the search's own windows differ by this factor, they count as the first round, though taken apart."""
_CLOSE = 1.04
"""If no more than this can be gained, it does not matter which one is fastest."""
_USUAL_WEIGHT = 1
"""The usual error counts as much as this many rounds."""
_FEW = 3
"""Fewer pairs than this do not show how much they vary."""
_MAX_ERROR = 2.0
"""Widest interval to report, as a logarithm."""


def compared(before: Sequence[StepWindow], after: Sequence[StepWindow]) -> Change:
    """How much faster steps are in `after`, pair by pair; `shown` if that is more than noise."""
    pairs = list(zip(before, after, strict=True))
    logs = [math.log(max(old.period_s, 1e-9) / max(new.period_s, 1e-9)) for old, new in pairs]
    mean, count = statistics.fmean(logs), len(logs)
    between = SINGLE_ERROR
    if count > 1:
        freedom = count - 1 + _USUAL_WEIGHT
        spread = sum((one - mean) ** 2 for one in logs) + _USUAL_WEIGHT * USUAL_ERROR**2
        between = t95(freedom) * math.sqrt(spread / freedom / count)
    within = math.hypot(*(_error(one) for pair in pairs for one in pair)) / count if count < _FEW else 0.0
    error = min(max(between, within), _MAX_ERROR)
    low, high = math.exp(mean - error), math.exp(mean + error)
    return Change(math.exp(mean), low, high, shown=low > 1 or high < 1)


def _error(window: StepWindow) -> float:
    return min(window.error_s / max(window.period_s, 1e-9), _MAX_ERROR)


def is_worth_it(gain: Change) -> bool:
    """Whether a gain justifies changing the settings."""
    return gain.low > 1 and gain.ratio >= WORTH_SWITCHING


class Race:
    """Between the user's own settings and others. Clear losers are not measured any more."""

    def __init__(
        self,
        own: LoaderSettings,
        others: Sequence[LoaderSettings],
        seen: Mapping[LoaderSettings, StepWindow] | None = None,
    ) -> None:
        """`seen`: windows measured before, one after another."""
        self._own = own
        self._runners = [*others, own]
        self._rounds: list[dict[LoaderSettings, StepWindow]] = []
        if seen and all(one in seen for one in self._runners):
            first = {one: seen[one] for one in self._runners}
            fastest_s = min(first[one].period_s * one.price for one in others)
            if first[own].period_s > _PLAIN * fastest_s:
                self._rounds.append(first)
                self._drop_losers()

    def run(self) -> Generator[LoaderSettings, StepWindow, None]:
        """Yield settings to measure until it is decided; back and forth, which evens out a drift."""
        while not self._is_decided():
            turn: dict[LoaderSettings, StepWindow] = {}
            for settings in turn_order(self._runners, len(self._rounds)):
                turn[settings] = yield settings
            self._rounds.append(turn)
            self._drop_losers()

    @property
    def has_begun(self) -> bool:
        """Whether a round is complete."""
        return bool(self._rounds)

    @property
    def best(self) -> LoaderSettings:
        """The smallest setting about as fast as the fastest one."""
        fastest_s = self._mean(self.fastest)
        as_good = [one for one in self._runners if fastest_s - self._mean(one) >= math.log(AS_GOOD)]
        return min(as_good, key=lambda one: (one.num_workers, one.prefetch_factor or 0))

    @property
    def fastest(self) -> LoaderSettings:
        """The fastest on average, whether or not that is more than noise."""
        return min(self._runners, key=self._mean)

    def gain(self, before: LoaderSettings, after: LoaderSettings) -> Change:
        """From the rounds in which both ran."""
        both = [turn for turn in self._rounds if before in turn and after in turn]
        return compared([turn[before] for turn in both], [turn[after] for turn in both])

    def _drop_losers(self) -> None:
        """Drop clear losers; once a change is worth it, drop the user's own settings and all that are not."""
        fastest = self.fastest
        if self._own in self._runners and len(self._rounds) >= _MIN_ROUNDS and self._is_shown(fastest):
            self._runners = [one for one in self._runners if one != self._own and self._is_shown(one)]
        self._runners = [
            one for one in self._runners if one in (fastest, self._own) or self.gain(one, fastest).low <= 1
        ]
        others = [one for one in self._runners if one != self._own]
        if len(others) < len(self._runners) and len(self._rounds) >= _DUEL_FROM:
            self._runners = [*sorted(others, key=self._mean)[:1], self._own]

    def _is_shown(self, settings: LoaderSettings) -> bool:
        return is_worth_it(self.gain(self._own, settings))

    def _is_decided(self) -> bool:
        if len(self._rounds) < _MIN_ROUNDS:
            return False
        has_own = self._own in self._runners
        if len(self._runners) == 1 or len(self._rounds) >= (
            _MAX_ROUNDS if has_own else _MAX_ROUNDS_WITHOUT_OWN
        ):
            return True
        best = self._own if has_own else self.best
        if has_own and len(self._rounds) >= _GIVE_UP_FROM:
            return all(self.gain(best, one).ratio < WORTH_SWITCHING for one in self._runners)
        return all(one == best or self.gain(best, one).high < _CLOSE for one in self._runners)

    def _mean(self, settings: LoaderSettings) -> float:
        """Mean logarithm of the priced time per step; every runner has been in every round."""
        steps_s = [max(turn[settings].period_s, 1e-9) for turn in self._rounds]
        return statistics.fmean(map(math.log, steps_s)) + math.log(settings.price)
