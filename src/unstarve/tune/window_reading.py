"""What a window says: whether training waits, whether cores are full, and what limits it."""

from __future__ import annotations

from unstarve.tune.bounds import WorkerLimits
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
    """The share of fetching in which a sample was waited for; 0 if that is unknown."""
    count, cpu = window.settings.num_workers, window.cpu
    if cpu is None or window.settings.threads:
        return 0.0
    if count:
        fetch_s, made_s = count * window.steady_s - cpu.queued_s, cpu.workers_s
    else:
        fetch_s, made_s = window.wait_s, cpu.wait_s
    # A worker that waits for training to take its batches does not wait for samples.
    return 0.0 if fetch_s <= 0 or window.wait_share < _STARVED else max(1 - made_s / fetch_s, 0.0)


def limit_of(window: StepWindow, limits: WorkerLimits) -> str:
    """What keeps the best setting from being faster, and what it would take."""
    if window.wait_share < CONTENT:
        waits = percent(window.wait_share)
        return f"training waits for data {waits} of its time: only faster steps would help"
    if cores_are_full(window, limits):
        cores = f"{limits.cores:g}"
        return f"all {cores} cores are busy: it would take more cores, or less work per sample"
    if window.cpu is None or window.settings.num_workers == 0:
        return "no faster setting was found"
    if window.cpu.wait_s > _RECEIVING * window.wait_s:
        return "receiving batches takes the time: it would take smaller batches, or less data per sample"
    return "workers wait for data, not for cores: it would take faster storage, or a closer copy"
