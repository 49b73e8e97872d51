"""Pulses of processes → memory over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from unstarve.model import MemoryLine, MemorySummary, Process, Pulse

_MOST_POINTS = 300
_PULSE_S = 1.0

Value = Callable[[Pulse], int | None]


def memory_of(shown: Process, processes: Sequence[Process], origin_ns: int) -> MemorySummary | None:
    """The memory of the machine that `shown`, a training process, ran on; None when nobody looked.

    Times count from `origin_ns`.
    """
    here = [p for p in processes if p.host == shown.host and p.pulses]
    if not here:
        return None
    end_ns = max(p.pulses[-1].at_ns for p in here)
    step_s = max(_PULSE_S, (end_ns - origin_ns) / 1e9 / _MOST_POINTS)
    grid = _Grid(origin_ns, step_s, int((end_ns - origin_ns) / 1e9 / step_s) + 1)
    training = [p for p in here if not p.worker]
    lines = [
        grid.line("training", training, lambda pulse: pulse.rss_bytes),
        grid.line("workers", [p for p in here if p.worker], lambda pulse: pulse.rss_bytes),
        # The same for all who look at it.
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
    """Points in time, evenly spaced, that what several processes said at different moments is brought to."""

    def __init__(self, origin_ns: int, step_s: float, count: int) -> None:
        self._origin_ns = origin_ns
        self._step_s = step_s
        self._count = count

    def line(self, name: str, processes: Iterable[Process], value: Value) -> MemoryLine:
        """The sum over those processes that lived at a point, of the most that each said around it."""
        total = np.zeros(self._count, dtype=np.int64)
        known = np.zeros(self._count, dtype=bool)
        for process in processes:
            said = [(p.at_ns, v) for p in process.pulses if (v := value(p)) is not None]
            if said:
                at = np.clip([self._place(at_ns) for at_ns, _ in said], 0, self._count - 1)
                own = np.full(self._count, -1)
                np.maximum.at(own, at, [v for _, v in said])
                # Between two pulses a process had what it said before.
                last = np.maximum.accumulate(np.where(own >= 0, np.arange(self._count), 0))
                lived = slice(at[0], at[-1] + 1)
                total[lived] += own[last][lived]
                known[lived] = True
        points = np.flatnonzero(known)
        at_s = tuple(round(float(point) * self._step_s, 3) for point in points)
        return MemoryLine(name, at_s, tuple(int(total[point]) for point in points))

    def _place(self, at_ns: int) -> int:
        return int((at_ns - self._origin_ns) / 1e9 / self._step_s)
