"""Pulses of processes, and looks at their memory → memory over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush

import numpy as np

from unstarve.analyze.memory_growth import is_worker_of, lasting_growth
from unstarve.analyze.stats import known_total
from unstarve.model import DescriptorUse, MemoryLine, MemoryPressure, MemorySummary, Process
from unstarve.model.memory_looks import MemoryLook

_MOST_POINTS = 300
_PULSE_S = 1.0

Readings = list[tuple[int, int]]
"""Time and value, of one process."""


def memory_of(shown: Process, processes: Sequence[Process], origin_ns: int) -> MemorySummary | None:
    """Memory on the machine of `shown`, a training process; None when it was not recorded.

    Times count from `origin_ns`.
    """
    here = [p for p in processes if p.host == shown.host and p.pulses]
    if not here:
        return None
    end_ns = max(p.pulses[-1].at_ns for p in here)
    step_s = max(_PULSE_S, (end_ns - origin_ns) / 1e9 / _MOST_POINTS)
    grid = _Grid(origin_ns, step_s, int(max(end_ns - origin_ns, 0) / 1e9 / step_s) + 1)
    training, workers = [p for p in here if not p.worker], [p for p in here if p.worker]
    lines = {
        "training": grid.line(_resident(p) for p in training),
        "workers": grid.line(_resident(p) for p in workers),
        # The same for all processes.
        "/dev/shm": grid.line([[(p.at_ns, v) for p in shown.pulses if (v := p.shm_bytes) is not None]]),
        "training PSS": grid.line(_looked(p, lambda look: look.pss_bytes) for p in training),
        "workers PSS": grid.line(_looked(p, lambda look: look.pss_bytes) for p in workers),
        "training USS": grid.line(_looked(p, lambda look: look.uss_bytes) for p in training),
        "workers USS": grid.line(_looked(p, lambda look: look.uss_bytes) for p in workers),
    }
    peaks = {name: max(values, default=None) for name, (_, values) in lines.items()}
    return MemorySummary(
        training_peak_bytes=peaks["training"],
        workers_peak_bytes=peaks["workers"],
        shm_peak_bytes=peaks["/dev/shm"],
        shm_total_bytes=next((p.shm_total_bytes for p in reversed(shown.pulses) if p.shm_total_bytes), None),
        lines=tuple(MemoryLine(name, *line) for name, line in lines.items() if line[1]),
        training_uss_peak_bytes=peaks["training USS"],
        workers_uss_peak_bytes=peaks["workers USS"],
        training_pss_peak_bytes=peaks["training PSS"],
        workers_pss_peak_bytes=peaks["workers PSS"],
        workers_most=sum(max((len(crew.pids) for crew in p.crews), default=0) for p in training),
        descriptors=_descriptors(shown, here, grid),
        pressure=_pressure(shown, here),
        growth=lasting_growth(shown, [p for p in workers if is_worker_of(p, shown)]),
    )


def _resident(process: Process) -> Readings:
    return [(pulse.at_ns, v) for pulse in process.pulses if (v := pulse.rss_bytes) is not None]


def _looked(process: Process, value: Callable[[MemoryLook], int | None]) -> Readings:
    return [(look.at_ns, v) for look in process.memory.looks if (v := value(look)) is not None]


def _descriptors(shown: Process, processes: Sequence[Process], grid: _Grid) -> DescriptorUse | None:
    own = _looked(shown, lambda look: look.descriptors)
    if not own:
        return None
    most = max(v for p in processes for _, v in _looked(p, lambda look: look.descriptors))
    return DescriptorUse(most, shown.memory.looks[-1].descriptor_limit, *grid.line([own]))


def _pressure(shown: Process, processes: Sequence[Process]) -> MemoryPressure | None:
    looks = shown.memory.looks
    if not looks:
        return None
    refaulted = [look.refaulted_bytes for look in looks if look.refaulted_bytes is not None]
    faults = [p.memory.looks[-1].major_faults for p in processes if p.memory.looks]
    return MemoryPressure(
        waiting_share=max((look.pressure for look in looks if look.pressure is not None), default=None),
        refaulted_bytes=refaulted[-1] - refaulted[0] if refaulted else None,
        major_faults=known_total(faults),
    )


class _Grid:
    """Evenly spaced points in time, onto which the readings of several processes are aligned."""

    def __init__(self, origin_ns: int, step_s: float, count: int) -> None:
        self._origin_ns = origin_ns
        self._step_s = step_s
        self._count = count

    def line(self, processes: Iterable[Readings]) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Points in time and, around each, the largest sum over the processes that lived at the same moment.

        Between two readings a process keeps its last value. It lives from its first reading to its last, so
        that workers of one epoch are never added to those of the next.
        """
        having: dict[int, int] = {}  # by process
        lasts: list[tuple[int, int]] = []  # heap of (time of the last reading, process)
        together, before = 0, 0
        most = np.full(self._count, -1, dtype=np.int64)
        for at_ns, number, end_ns, has in _moments(processes):
            while lasts and lasts[0][0] < at_ns:
                together -= having.pop(heappop(lasts)[1])
            place = min(max(self._place(at_ns), 0), self._count - 1)
            if having:
                most[before + 1 : place] = together
            if number not in having:
                heappush(lasts, (end_ns, number))
            together += has - having.get(number, 0)
            having[number] = has
            most[place] = max(most[place], together)
            before = place
        points = np.flatnonzero(most >= 0)
        at_s = tuple(round(float(point) * self._step_s, 3) for point in points)
        return at_s, tuple(int(most[point]) for point in points)

    def _place(self, at_ns: int) -> int:
        return int((at_ns - self._origin_ns) / 1e9 / self._step_s)


def _moments(processes: Iterable[Readings]) -> list[tuple[int, int, int, int]]:
    """All readings in order of time: (time, process, time of its last reading, value)."""
    return sorted(
        (at_ns, number, said[-1][0], v) for number, said in enumerate(processes) for at_ns, v in said
    )
