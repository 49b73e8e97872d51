"""What a window says: whether training waits, whether cores are full, and what limits it."""

from __future__ import annotations

from unstarve.tune.bounds import WorkerLimits
from unstarve.tune.cpu_clock import CpuTime
from unstarve.tune.step_window import StepWindow
from unstarve.words import percent

CONTENT = 0.03
"""A share of waiting below this is not worth a search."""
_CROWDED = 0.85
"""With more workers than cores, and this share of the cores in use, workers may be in each other's way."""
_RECEIVING = 0.5
"""A training process that computes for this share of its waits holds up the workers it receives from."""
_STARVED, _LIGHT = 0.5, 0.25
"""Where training does not wait most of its time, and workers compute little of it, it may need none."""
_BUSY_CORES = 0.15
"""Other processes that use less than this share of the cores are the system's own."""
_MOSTLY_BLOCKED = 0.5
_CHEAP_S = 0.03
"""If a worker makes a batch in this time, a trial without workers costs next to nothing."""


def fastest_possible_s(window: StepWindow, limits: WorkerLimits) -> float:
    """The shortest time per step that more workers could lead to: training alone, or all cores busy."""
    return max(window.step_s, 0.0 if window.cpu is None else window.cpu.all_s / limits.cores)


def is_content(window: StepWindow, limits: WorkerLimits) -> bool:
    """Whether training hardly waits, and workers do not take its cores either."""
    return (
        window.wait_share < CONTENT
        and window.start_s < CONTENT * window.period_s
        and not is_crowded(window, limits)
    )


def cores_are_full(window: StepWindow, limits: WorkerLimits) -> bool:
    """Whether hardly a core is left to this process and its workers."""
    busy = 0.0 if window.cpu is None else window.cpu.all_s / max(window.steady_s, 1e-9)
    return busy > _CROWDED * limits.cores


def others_take_cores(foreign_cores: float, limits: WorkerLimits) -> str | None:
    """Say how many of the cores other processes use; None if hardly any."""
    if foreign_cores < _BUSY_CORES * limits.cores:
        return None
    return f"{min(foreign_cores, limits.cores):.1f} of {limits.cores:g} cores"


def is_crowded(window: StepWindow, limits: WorkerLimits) -> bool:
    """Whether there are more workers than cores, and no core to spare."""
    return window.settings.num_workers > limits.cores and cores_are_full(window, limits)


def is_optimal(window: StepWindow, limits: WorkerLimits) -> bool:
    """Whether no number of workers could be much faster."""
    goal_s = fastest_possible_s(window, limits)
    return window.period_s <= (1 + CONTENT) * goal_s and not is_crowded(window, limits)


def costs_to_receive(window: StepWindow) -> bool:
    """Whether the hand-off may cost more than making a batch, or making one costs next to nothing."""
    count = window.settings.num_workers
    if count == 0:
        return False
    queued_s = 0.0 if window.cpu is None else window.cpu.queued_s
    if count * window.steady_s - queued_s <= _CHEAP_S:
        return True
    if window.cpu is None:
        return False
    is_light = window.wait_share < _STARVED and window.cpu.workers_s < _LIGHT * window.steady_s
    return is_light or window.cpu.wait_s > _RECEIVING * window.wait_s > 0


def blocked_share(window: StepWindow) -> float:
    """The share of fetching in which a sample was waited for, or less; 0 if that is unknown."""
    count, cpu = window.settings.num_workers, window.cpu
    if cpu is None or window.settings.threads:
        return 0.0
    if count:
        fetch_s, made_s = count * window.steady_s - cpu.queued_s, cpu.workers_s
        # A worker that waits for training to take its batches does not wait for samples.
        idle = 1 - window.wait_share
    else:
        fetch_s, made_s, idle = window.wait_s - queued_in_wait_s(window, cpu), cpu.wait_s, 0.0
    return max(1 - made_s / fetch_s - idle, 0.0) if fetch_s > 0 else 0.0


def queued_in_wait_s(window: StepWindow, cpu: CpuTime) -> float:
    """How long the training thread had no core inside ``next()``: not counted apart, so by its share."""
    return cpu.main_queued_s * window.wait_share


def limit_of(window: StepWindow, limits: WorkerLimits) -> str | None:
    """What keeps the best setting from being faster, and what it would take; None if that is unknown."""
    if window.wait_share < CONTENT:
        waits = percent(window.wait_share)
        return f"training waits for data {waits} of its time: only faster steps would help"
    if cores_are_full(window, limits):
        cores = f"{limits.cores:g}"
        return f"all {cores} cores are busy: it would take more cores, or less work per sample"
    cpu, count = window.cpu, window.settings.num_workers
    if cpu is None:
        return None
    foreign_cores = cpu.foreign_cores or 0.0
    taken = others_take_cores(foreign_cores, limits)
    if taken and cpu.all_s / window.steady_s + foreign_cores > _CROWDED * limits.cores:
        return f"other processes use {taken}: it would take a quiet machine"
    if count and cpu.wait_s > _RECEIVING * window.wait_s:
        return "receiving batches takes the time: it would take smaller batches, or less data per sample"
    if count and blocked_share(window) > _MOSTLY_BLOCKED:
        return "workers wait for data, not for cores: it would take faster storage, or a closer copy"
    return None
