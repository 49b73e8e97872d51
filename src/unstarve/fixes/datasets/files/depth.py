"""How many direct reads to keep in flight: measured on the first real batches, per device, then kept."""

from __future__ import annotations

import statistics
import threading

DEFAULT = 32
_CANDIDATES = (32, 16, 64)
_TRIALS = 4  # of each
_WORTH = 1.1  # another depth has to be this much faster than the default


class DepthTrials:
    """The trials of one device. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rates: dict[int, list[float]] = {depth: [] for depth in _CANDIDATES}
        self._chosen: int | None = None

    def depth_for(self, reads: int) -> int:
        """Return the depth for a batch of so many reads: one that is on trial, or the chosen one."""
        if self._chosen is not None:
            return self._chosen
        if reads < max(_CANDIDATES):
            return DEFAULT  # too few to tell the candidates apart
        with self._lock:
            return min(_CANDIDATES, key=lambda depth: len(self._rates[depth]))

    def record(self, depth: int, reads: int, size_bytes: int, wall_s: float) -> None:
        """Note how long a batch took at a depth that `depth_for` gave."""
        if self._chosen is not None or reads < max(_CANDIDATES) or wall_s <= 0:
            return
        with self._lock:
            self._rates[depth].append(size_bytes / wall_s)
            if min(map(len, self._rates.values())) >= _TRIALS:
                medians = {depth: statistics.median(rates) for depth, rates in self._rates.items()}
                best = max(medians, key=lambda depth: medians[depth])
                self._chosen = best if medians[best] > _WORTH * medians[DEFAULT] else DEFAULT


_devices: dict[int, DepthTrials] = {}


def trials_of(device: int) -> DepthTrials:
    """Return the trials of a device (`st_dev`), remembered for as long as the process lives."""
    return _devices.setdefault(device, DepthTrials())
