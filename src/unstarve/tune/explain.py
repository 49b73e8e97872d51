"""Tuning results in words."""

from __future__ import annotations

import statistics

from unstarve.model import LoaderSettings, Trial, Tuning
from unstarve.model.parts import CACHED, GATHER, GPU_IMAGES, IMAGES, RING, THREADS
from unstarve.words import interval, percent, rate, workers


def describe_makers(settings: LoaderSettings) -> str:
    """``4 workers``, ``images read by unstarve``."""
    count = settings.num_workers
    threads = f"{count} {'thread' if count == 1 else 'threads'}"
    words = {
        IMAGES: "images read by unstarve",
        GPU_IMAGES: "images read by unstarve and decoded by the GPU",
        RING: f"{workers(count)} of unstarve's engine ring",
        THREADS: f"{threads} of unstarve's engine threads",
        GATHER: "rows gathered by unstarve without workers",
        CACHED: f"{workers(count)} and samples kept in memory",
    }
    return words.get(settings.part) or workers(count)


def describe(settings: LoaderSettings) -> str:
    """``4 workers, 2 batches ahead each``."""
    if settings.num_workers == 0:
        return describe_makers(settings)
    ahead = settings.in_flight if settings.shared else settings.prefetch_factor or 0
    each = "" if settings.shared else " each"
    return f"{describe_makers(settings)}, {ahead} {'batch' if ahead == 1 else 'batches'} ahead{each}"


def explain(tuning: Tuning) -> str:
    """A few lines for a person: what runs now and why, and what was tried."""
    lines = [_headline(tuning)]
    tried: dict[LoaderSettings, list[Trial]] = {}
    for trial in tuning.trials:
        if trial.kind == "predicted":
            continue
        tried.setdefault(trial.settings, []).append(trial)
    lines += [f"  {_tried(trials)}" for trials in tried.values()]
    lines += [f"  {note}" for note in tuning.notes]
    return "\n".join(lines)


def _headline(tuning: Tuning) -> str:
    if not tuning.settled:
        return f"still tuning, best so far after {tuning.steps} steps: {describe(tuning.chosen)}"
    if tuning.keep:
        return f"keep your settings ({describe(tuning.before)}): {tuning.reason}"
    gain = tuning.gain
    sure = f" {interval(gain.low, gain.high, 2)}" if gain is not None else ""
    return f"{describe(tuning.chosen)}, instead of {describe(tuning.before)}: {tuning.reason}{sure}"


def _tried(trials: list[Trial]) -> str:
    """All trials of one setting."""
    per_s, low, high = (
        statistics.fmean(getattr(one, name) for one in trials) for name in ("samples_per_s", "low", "high")
    )
    waits = [one.wait_share for one in trials if one.wait_share is not None]
    wait = f", waiting {percent(statistics.fmean(waits))}" if waits else ""
    times = f", measured {len(trials)} times" if len(trials) > 1 else ""
    return f"{describe(trials[0].settings)}: {rate(per_s)} samples/s {interval(low, high, 2)}{wait}{times}"
