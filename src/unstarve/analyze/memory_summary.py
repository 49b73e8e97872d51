"""Pulses of processes → memory over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush

import numpy as np

from unstarve.model import MemoryLine, MemorySummary, Process, Pulse

_MOST_POINTS = 300
_PULSE_S = 1.0

Value = Callable[[Pulse], int | None]


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
    training = [p for p in here if not p.worker]
    lines = [
        grid.line("training", training, lambda pulse: pulse.rss_bytes),
        grid.line("workers", [p for p in here if p.worker], lambda pulse: pulse.rss_bytes),
        # The same for all processes.
        grid.line("/dev/shm", [shown], lambda pulse: pulse.shm_bytes),
    ]
    peaks = [max(line.bytes, default=None) for line in lines]
    return MemorySummary(
        training_peak_bytes=peaks[0],
        workers_peak_bytes=peaks[1],
        shm_peak_bytes=peaks[2],
        shm_total_bytes=next((p.shm_total_bytes for p in reversed(shown.pulses) if p.shm_total_bytes), None),
        lines=tuple(line for line in lines if line.bytes),
    )


class _Grid:
    """Evenly spaced points in time, onto which the readings of several processes are aligned."""

    def __init__(self, origin_ns: int, step_s: float, count: int) -> None:
        self._origin_ns = origin_ns
        self._step_s = step_s
        self._count = count

    def line(self, name: str, processes: Iterable[Process], value: Value) -> MemoryLine:
        """Around each point, the largest sum over the processes that lived at the same moment.

        Between two pulses a process keeps its last value. It lives from its first pulse to its last, so that
        workers of one epoch are never added to those of the next.
        """
        having: dict[int, int] = {}  # by process
        lasts: list[tuple[int, int]] = []  # heap of (time of the last pulse, process)
        together, before = 0, 0
        most = np.full(self._count, -1, dtype=np.int64)
        for at_ns, number, end_ns, has in _moments(processes, value):
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
        return MemoryLine(name, at_s, tuple(int(most[point]) for point in points))

    def _place(self, at_ns: int) -> int:
        return int((at_ns - self._origin_ns) / 1e9 / self._step_s)


def _moments(processes: Iterable[Process], value: Value) -> list[tuple[int, int, int, int]]:
    """All pulses in order of time: (time, process, time of its last pulse, value)."""
    found = []
    for number, process in enumerate(processes):
        said = [(pulse.at_ns, v) for pulse in process.pulses if (v := value(pulse)) is not None]
        found += [(at_ns, number, said[-1][0], v) for at_ns, v in said]
    return sorted(found)
