"""The parts that a search did not try, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unstarve.model.parts import PARTS, RING
from unstarve.tune.bounds import Bounds
from unstarve.tune.step_window import StepWindow
from unstarve.tune.window_reading import CONTENT, blocked_share
from unstarve.words import duration, percent

_BLOCKED = 0.5
"""From this share of fetching on, threads could wait for several samples at once."""
_FILL_S = 30.0
"""A cache is tried if filling it takes no longer than this."""
_ASYNC = "did not try AsyncPrefetchDataset: only you know whether several threads may use the dataset at once"


def untried_parts(
    bounds: Bounds,
    windows: Sequence[StepWindow],
    best: StepWindow,
    left_out: Mapping[str, str],
    *,
    is_over: bool,
) -> tuple[str, ...]:
    """A sentence for each; `left_out`: those that the search decided against, `is_over`: it tries no more."""
    tried = {one.settings.part for one in windows}
    waits = best.wait_share >= CONTENT or best.start_s >= CONTENT * best.period_s
    said = []
    for name, part in PARTS.items():
        if name in tried:
            continue
        if not waits and name in bounds.parts:
            why: str | None = f"training waits for data only {percent(best.wait_share)} of its time"
        elif name in bounds.parts:
            usual = "the forecast promises nothing from it" if is_over else "tuning has not come to it"
            why = left_out.get(name, usual)
        else:
            why = bounds.refused.get(name) if waits else None
        if why is not None:
            said.append(f"did not try {part.what}: {why}")
    # Without workers, waiting for a sample and waiting for a busy core look the same.
    telling = [one for one in windows if one.settings.num_workers] or windows
    if waits and RING in bounds.parts and any(blocked_share(one) > _BLOCKED for one in telling):
        said.append(_ASYNC)
    return tuple(said)


def why_not_filled(batches: int | None, period_s: float) -> str | None:
    """Say why a cache is not filled during tuning: an epoch of so many batches takes too long."""
    fill_s = None if batches is None else batches * period_s
    if fill_s is not None and fill_s <= _FILL_S:
        return None
    takes = "an epoch" if fill_s is None else f"an epoch, {duration(fill_s)} here"
    return f"filling it takes {takes}; it pays from the second epoch on"
