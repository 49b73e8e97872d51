"""What a reader of the result should know besides settings: other processes, and copies to the GPU."""

from __future__ import annotations

from collections.abc import Sequence

from unstarve.tune.bounds import WorkerLimits
from unstarve.tune.step_window import StepWindow
from unstarve.tune.window_forecast import BatchFacts
from unstarve.tune.window_reading import others_take_cores
from unstarve.words import percent

_PAGEABLE_BYTES_PER_S, _PINNED_BYTES_PER_S = 20e9, 61e9
"""Of copies to an H200: a lead."""
_WORTH = 0.05
"""Smallest share of a step for which copies matter."""


def busy_note(windows: Sequence[StepWindow], limits: WorkerLimits) -> str | None:
    """Say that other processes used the cores while settings were measured; None if hardly."""
    counted = [
        (one.cpu.foreign_cores, one.seconds)
        for one in windows
        if one.cpu is not None and one.cpu.foreign_cores is not None
    ]
    seconds = sum(lasted_s for _, lasted_s in counted)
    mean = sum(cores * lasted_s for cores, lasted_s in counted) / seconds if seconds else 0.0
    taken = others_take_cores(mean, limits)
    if taken is None:
        return None
    return f"other processes used {taken} meanwhile: on a quiet machine, the best setting may differ"


def copy_note(windows: Sequence[StepWindow], facts: BatchFacts) -> str | None:
    """Say why `unstarve.to_device` was not tried where copies may take a part of the step; None elsewhere.

    It cannot be tried for a loop that was written for batches on the CPU.
    """
    if not windows or not facts.copied:
        return None
    copy_s = facts.nbytes / (_PINNED_BYTES_PER_S if facts.pinned else _PAGEABLE_BYTES_PER_S)
    share = copy_s / min(one.period_s for one in windows)
    if share < _WORTH:
        return None
    return (
        f"did not try unstarve.to_device, although copies to the GPU may take {percent(min(share, 1.0))} of a"
        " step: it gives batches on the GPU, and only you know whether your loop can take them;"
        " `unstarve run --copies` measures what it would gain"
    )
