"""The trials of a tuning → one row per setting."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict

from unstarve.model import Change, LoaderSettings, Trial, Tuning
from unstarve.model.tune_run import SettingSummary


def tried(tuning: Tuning) -> tuple[SettingSummary, ...]:
    """Measured trials by setting: fewer workers first, images read by unstarve last.

    Settings that were only predicted are left out.
    """
    groups: defaultdict[LoaderSettings, list[Trial]] = defaultdict(list)
    for trial in tuning.trials:
        if trial.kind == "measured":
            groups[trial.settings].append(trial)
    own = groups.get(tuning.before)
    own_rate = None if own is None else _mean(own, "samples_per_s")
    return tuple(
        _line(settings, groups[settings], own_rate, tuning) for settings in sorted(groups, key=_order)
    )


def so_far(tuning: Tuning) -> Tuning:
    """A tuning that was cut short, with the gain that its trials show; a finished tuning unchanged.

    A setting that was not shown to be faster is not chosen: the user's own are kept.
    """
    if tuning.settled or tuning.chosen == tuning.before:
        return tuning
    lines = {line.settings: line for line in tried(tuning)}
    own, best = lines.get(tuning.before), lines.get(tuning.chosen)
    gain = None if own is None or best is None else _gain(own, best)
    if gain is None or gain.low <= 1:
        reason = "too little was measured to tell"
        return dataclasses.replace(tuning, chosen=tuning.before, keep=True, gain=gain, reason=reason)
    return dataclasses.replace(tuning, gain=gain)


def _gain(own: SettingSummary, best: SettingSummary) -> Change:
    """The gain of `best` over `own`, from two independent intervals."""
    ratio = best.samples_per_s / own.samples_per_s
    error = math.hypot(*(math.log(line.high / line.low) / 2 for line in (own, best)))
    low, high = ratio * math.exp(-error), ratio * math.exp(error)
    return Change(ratio, low, high, shown=low > 1 or high < 1)


def _order(settings: LoaderSettings) -> tuple[tuple[bool, int], int]:
    return settings.makers, settings.prefetch_factor or 0


def _line(
    settings: LoaderSettings, trials: list[Trial], own_rate: float | None, tuning: Tuning
) -> SettingSummary:
    rate = _mean(trials, "samples_per_s")
    waits = [trial for trial in trials if trial.wait_share is not None]
    return SettingSummary(
        settings=settings,
        times=len(trials),
        steps=sum(trial.steps for trial in trials),
        samples_per_s=rate,
        low=_mean(trials, "low"),
        high=_mean(trials, "high"),
        wait_share=_mean(waits, "wait_share") if waits else None,
        rss_bytes=max((t.rss_bytes for t in trials if t.rss_bytes is not None), default=None),
        shm_bytes=max((t.shm_bytes for t in trials if t.shm_bytes is not None), default=None),
        speedup=rate / own_rate if own_rate else None,
        own=settings == tuning.before,
        chosen=settings == tuning.chosen,
    )


def _mean(trials: list[Trial], name: str) -> float:
    """Mean over all measured time."""
    seconds = sum(trial.seconds for trial in trials)
    if seconds <= 0:
        return sum(float(getattr(trial, name)) for trial in trials) / len(trials)
    return sum(float(getattr(trial, name)) * trial.seconds for trial in trials) / seconds
