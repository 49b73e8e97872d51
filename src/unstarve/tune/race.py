"""The last few settings, measured in turns until it is clear enough which of them is fastest.

What disturbs a machine lasts for seconds, longer than a window: two windows right after one another share
most of it, and two that are far apart do not. So only settings of the same round are compared.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Generator, Sequence

from unstarve.intervals import WORTH_SWITCHING, t95, turn_order
from unstarve.model import Change, LoaderSettings
from unstarve.tune.window import Window, price_of

AS_GOOD = 0.98
"""Of the best speed: a setting that reaches it with fewer workers is preferred."""
_LEAST_ROUNDS = 2
"""What is told of a gain should be better known than one pair of windows lets it be."""
_ROUNDS = 8
_ROUNDS_WITHOUT_OWN = 3
"""Which of the others is best matters less than that it is better than the user's own."""
_DUEL = 3
"""From so many rounds on only the best of the others still runs against the user's own."""
_CLOSE = 1.04
"""No more can be gained elsewhere: then it need not be known which is fastest."""
_USUAL = 0.03
"""By how much the ratio of two windows is off on a machine that has little else to do, …"""
_USUAL_WEIGHT = 1
"""… which counts for as much as so many more rounds would."""
_ONCE = 0.35
"""A single pair says nothing about how much it is off, and on a busy machine that is much."""
_FEW = 3
"""Fewer pairs do not tell by themselves how much they vary."""
_UNSURE = 2.0
"""As a logarithm: an interval is not told to be wider than this."""


def compared(before: Sequence[Window], after: Sequence[Window]) -> Change:
    """How much faster steps are in `after`, window by window; `shown` where that is more than noise."""
    pairs = list(zip(before, after, strict=True))
    logs = [math.log(max(old.period_s, 1e-9) / max(new.period_s, 1e-9)) for old, new in pairs]
    mean, count = statistics.fmean(logs), len(logs)
    between = _ONCE
    if count > 1:
        freedom = count - 1 + _USUAL_WEIGHT
        spread = sum((one - mean) ** 2 for one in logs) + _USUAL_WEIGHT * _USUAL**2
        between = t95(freedom) * math.sqrt(spread / freedom / count)
    within = math.hypot(*(_error(one) for pair in pairs for one in pair)) / count if count < _FEW else 0.0
    error = min(max(between, within), _UNSURE)
    low, high = math.exp(mean - error), math.exp(mean + error)
    return Change(math.exp(mean), low, high, shown=low > 1 or high < 1)


def _error(window: Window) -> float:
    return min(window.error_s / max(window.period_s, 1e-9), _UNSURE)


def is_worth_it(gain: Change) -> bool:
    """Whether settings should be changed for it."""
    return gain.low > 1 and gain.ratio >= WORTH_SWITCHING


class Race:
    """Between the user's own settings and others. Who has lost for sure is measured no more."""

    def __init__(self, own: LoaderSettings, others: Sequence[LoaderSettings]) -> None:
        self._own = own
        self._runners = [*others, own]
        self._rounds: list[dict[LoaderSettings, Window]] = []

    def run(self) -> Generator[LoaderSettings, Window, None]:
        """Ask for windows until it is decided; forth and back, which evens out a drift."""
        while not self._is_decided():
            turn: dict[LoaderSettings, Window] = {}
            for settings in turn_order(self._runners, len(self._rounds)):
                turn[settings] = yield settings
            self._rounds.append(turn)
            self._drop_losers()

    @property
    def has_begun(self) -> bool:
        """A round is complete."""
        return bool(self._rounds)

    @property
    def best(self) -> LoaderSettings:
        """The smallest of those about as fast as the fastest."""
        fastest_s = self._mean(self.fastest)
        as_good = [one for one in self._runners if fastest_s - self._mean(one) >= math.log(AS_GOOD)]
        return min(as_good, key=lambda one: (one.num_workers, one.prefetch_factor or 0))

    @property
    def fastest(self) -> LoaderSettings:
        """Shown or not."""
        return min(self._runners, key=self._mean)

    def gain(self, before: LoaderSettings, after: LoaderSettings) -> Change:
        """Over the rounds that both have taken part in."""
        both = [turn for turn in self._rounds if before in turn and after in turn]
        return compared([turn[before] for turn in both], [turn[after] for turn in both])

    def _drop_losers(self) -> None:
        """The user's own settings go when something is worth a change, with all that is not shown to be."""
        fastest = self.fastest
        if self._own in self._runners and len(self._rounds) >= _LEAST_ROUNDS and self._is_shown(fastest):
            self._runners = [one for one in self._runners if one != self._own and self._is_shown(one)]
        self._runners = [
            one for one in self._runners if one in (fastest, self._own) or self.gain(one, fastest).low <= 1
        ]
        others = [one for one in self._runners if one != self._own]
        if len(others) < len(self._runners) and len(self._rounds) >= _DUEL:
            self._runners = [*sorted(others, key=self._mean)[:1], self._own]

    def _is_shown(self, settings: LoaderSettings) -> bool:
        return is_worth_it(self.gain(self._own, settings))

    def _is_decided(self) -> bool:
        if len(self._rounds) < _LEAST_ROUNDS:
            return False
        has_own = self._own in self._runners
        if len(self._runners) == 1 or len(self._rounds) >= (_ROUNDS if has_own else _ROUNDS_WITHOUT_OWN):
            return True
        best = self._own if has_own else self.best
        return all(one == best or self.gain(best, one).high < _CLOSE for one in self._runners)

    def _mean(self, settings: LoaderSettings) -> float:
        """Of the priced time per step, as a logarithm; whoever still runs has been in every round."""
        steps_s = [max(turn[settings].period_s, 1e-9) for turn in self._rounds]
        return statistics.fmean(map(math.log, steps_s)) + math.log(price_of(settings))
