"""The trials of a tuning → one row per setting."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

from unstarve.intervals import SINGLE_ERROR, USUAL_ERROR, t95
from unstarve.model import Change, LoaderSettings, Trial, Tuning
from unstarve.model.tune_run import SettingSummary

_MOST_ERROR = 2.0
"""Widest interval to report, as a logarithm."""


def tried(tuning: Tuning) -> tuple[SettingSummary, ...]:
    """Trials by setting: fewer workers first, unstarve's parts last.

    A setting that was only predicted has a row if it was chosen.
    """
    groups: defaultdict[LoaderSettings, list[Trial]] = defaultdict(list)
    for trial in tuning.trials:
        if trial.kind == "measured" or (trial.settings == tuning.chosen and tuning.is_predicted):
            groups[trial.settings].append(trial)
    own = groups.get(tuning.before)
    own_rate = None if own is None else _mean(own, "samples_per_s")
    lines = [_line(settings, groups[settings], own_rate, tuning) for settings in sorted(groups, key=_order)]
    chosen = next((line.samples_per_s for line in lines if line.settings == tuning.chosen), math.inf)
    return tuple(
        dataclasses.replace(line, unproven=line.times > 0 and line.samples_per_s > chosen) for line in lines
    )


def so_far(tuning: Tuning) -> Tuning:
    """What a tuning that was cut short has found; a finished tuning unchanged.

    That is the best setting that its trials show to be faster. If there is none, it is the best of the
    forecasts, as predicted and not proven; without forecasts the user's own settings are kept.
    """
    if tuning.settled:
        return tuning
    lines = {line.settings: line for line in tried(tuning) if line.times}
    own = lines.get(tuning.before)
    rates = _rates(tuning)
    gains = (
        {}
        if own is None
        else {
            one: _gain(own, line, rates[tuning.before], rates[one])
            for one, line in lines.items()
            if line is not own
        }
    )
    proven = [one for one, gain in gains.items() if gain.low > 1]
    if proven and own is not None:
        best = max(proven, key=lambda one: gains[one].ratio / one.price)
        steps = own.steps + lines[best].steps
        return dataclasses.replace(
            tuning, chosen=best, keep=False, gain=gains[best], proven_steps=steps, reason="the best so far"
        )
    foretold = next((one for one in tuning.trials if one.kind == "predicted"), None)
    if own is not None and foretold is not None and foretold.low > own.samples_per_s:
        rate = own.samples_per_s
        gain = Change(foretold.samples_per_s / rate, foretold.low / rate, foretold.high / rate, shown=False)
        return dataclasses.replace(
            tuning, chosen=foretold.settings, keep=False, gain=gain, reason="predicted, not proven"
        )
    reason = "too little was measured to tell"
    return dataclasses.replace(tuning, chosen=tuning.before, keep=True, gain=None, reason=reason)


def _rates(tuning: Tuning) -> Mapping[LoaderSettings, list[float]]:
    """Samples per second of each trial, as logarithms."""
    found: defaultdict[LoaderSettings, list[float]] = defaultdict(list)
    for trial in tuning.trials:
        if trial.kind == "measured":
            found[trial.settings].append(math.log(trial.samples_per_s))
    return found


def _gain(
    own: SettingSummary, best: SettingSummary, own_rates: Sequence[float], best_rates: Sequence[float]
) -> Change:
    """The gain of `best` over `own`, measured at other times, in which the machine may have changed."""
    ratio = best.samples_per_s / own.samples_per_s
    within = math.hypot(*(math.log(line.high / line.low) / 2 for line in (own, best)))
    counts = len(own_rates), len(best_rates)
    between = SINGLE_ERROR
    if max(counts) > 1:
        freedom = sum(counts) - 1
        spread = sum((one - fmean(some)) ** 2 for some in (own_rates, best_rates) for one in some)
        variance = (spread + USUAL_ERROR**2) / freedom
        between = t95(freedom) * math.sqrt(variance * sum(1 / count for count in counts))
    error = min(max(within, between), _MOST_ERROR)
    low, high = ratio * math.exp(-error), ratio * math.exp(error)
    return Change(ratio, low, high, shown=low > 1 or high < 1)


def _order(settings: LoaderSettings) -> tuple[tuple[str, int], int]:
    return settings.makers, settings.prefetch_factor or 0


def _line(
    settings: LoaderSettings, trials: list[Trial], own_rate: float | None, tuning: Tuning
) -> SettingSummary:
    rate = _mean(trials, "samples_per_s")
    waits = [trial for trial in trials if trial.wait_share is not None]
    return SettingSummary(
        settings=settings,
        times=sum(trial.kind == "measured" for trial in trials),
        steps=sum(trial.steps for trial in trials),
        samples_per_s=rate,
        low=_mean(trials, "low"),
        high=_mean(trials, "high"),
        wait_share=_mean(waits, "wait_share") if waits else None,
        rss_bytes=max((t.rss_bytes for t in trials if t.rss_bytes is not None), default=None),
        shm_bytes=max((t.shm_bytes for t in trials if t.shm_bytes is not None), default=None),
        speedup=rate / own_rate if own_rate else None,
        own=settings == tuning.before,
        chosen=settings == tuning.chosen and not tuning.keep,
    )


def _mean(trials: list[Trial], name: str) -> float:
    """Mean over all measured time."""
    seconds = sum(trial.seconds for trial in trials)
    if seconds <= 0:
        return sum(float(getattr(trial, name)) for trial in trials) / len(trials)
    return sum(float(getattr(trial, name)) * trial.seconds for trial in trials) / seconds
