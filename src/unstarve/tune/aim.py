"""From a stretch of steps: how fast training could be at best, and how many workers that would take.

Waiting for storage or network takes no core, so that it scales with the number of workers; CPU work scales
with the cores. Both are told apart by the CPU time that was spent meanwhile.
"""

from __future__ import annotations

import math

from unstarve.tune.machine import Machine
from unstarve.tune.window import Window

CONTENT = 0.03
"""Share of waiting that is not worth a search."""
_CROWDED = 0.85
"""Share of the cores in use from which more workers than cores may be in each other's way."""
_BUSY = 0.6
"""Share of its time that a process spends on a CPU from which it holds the others up."""
_CHEAP_S = 0.03
"""A batch that takes a worker no longer than this is made without one, for a trial, at next to no cost."""
_HAND_OVER = 0.95
"""Share of a worker's CPU time that handing over may be: new shared memory for a large batch costs much."""


def floor_s(window: Window, machine: Machine) -> float:
    """The least time per step that more workers could lead to: training alone, or all cores busy."""
    return max(window.step_s, (window.cpu_s or 0.0) / machine.cores)


def wanted_workers(window: Window, machine: Machine) -> int:
    """How many it would take if each did as well as those that were measured."""
    count = window.settings.num_workers
    busy_s = window.wait_s if count == 0 else count * window.period_s
    floor = max(floor_s(window, machine), 1e-6)
    return min(max(math.ceil(busy_s / floor - 0.05), 1), machine.most_workers)


def is_content(window: Window, machine: Machine) -> bool:
    """Whether training hardly waits, and workers do not take its cores either."""
    return (
        window.wait_share < CONTENT
        and window.start_s < CONTENT * window.period_s
        and not is_crowded(window, machine)
    )


def is_crowded(window: Window, machine: Machine) -> bool:
    """More workers than cores, and no core to spare."""
    busy = (window.cpu_s or 0.0) / max(window.period_s, 1e-9)
    return window.settings.num_workers > machine.cores and busy > _CROWDED * machine.cores


def is_at_its_best(window: Window, machine: Machine) -> bool:
    """Whether no number of workers could be much faster."""
    return window.period_s <= (1 + CONTENT) * floor_s(window, machine) and not is_crowded(window, machine)


def none_may_do(window: Window, best_s: float) -> bool:
    """Whether making batches without workers, one after the other, could beat `best_s`."""
    count, workers_s = window.settings.num_workers, window.workers_cpu_s
    if count == 0:
        return False
    busy_s = count * window.period_s  # waiting for a core included, which says nothing about one process
    if workers_s is None or window.cpu_s is None:
        return busy_s <= _CHEAP_S
    if window.step_s + (1 - _HAND_OVER) * workers_s >= best_s:
        return False
    main_is_busy = window.cpu_s - workers_s > _BUSY * window.period_s  # with receiving: workers wait for it
    return main_is_busy or busy_s <= _CHEAP_S or busy_s - workers_s <= 2 * best_s
