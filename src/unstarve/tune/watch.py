"""Notices after tuning that conditions have changed: a cache is warm now, another job has arrived."""

from __future__ import annotations

_SPAN_S = 3.0
"""A look at least this often, and not more often."""
_STEPS = 20
_FAR = 0.15
"""Share of the time per step by which waiting must have changed, …"""
_LOOKS = 3
"""… so many times in a row."""
_FIRST_PAUSE_S = 10.0
_LONGEST_PAUSE_S = 600.0
"""A machine that changes all the time is not searched all the time."""
_PAUSE_S = 1.0
_PAUSE_STEPS = 20
"""What takes the training loop so long, and as long as so many steps, is none: it validates, or saves."""


class Watch:
    """Compares stretches of steps with what tuning ended on. Its costs per step are two additions."""

    def __init__(self) -> None:
        self._pause_s = _FIRST_PAUSE_S / 2
        self._begin()

    def _begin(self) -> None:
        self._since_s = 0.0
        self._strange = 0
        self._begin_stretch()
        self._period_s: float | None = None
        self._usual_wait_s = 0.0

    def _begin_stretch(self) -> None:
        self._wait_s = self._seconds = 0.0
        self._steps = 0

    def settle(self) -> None:
        """Tuning has ended: learn from the next stretch what is usual, and wait longer than last time."""
        self._begin()
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)

    def add(self, wait_s: float, step_s: float) -> bool:
        """One step: what it waited and what it took in all. True when a stretch is complete."""
        if step_s - wait_s > _PAUSE_S and self._is_pause(step_s - wait_s):
            self._begin_stretch()  # and batches lie ready after it
            return False
        self._wait_s += wait_s
        self._seconds += step_s
        self._steps += 1
        return self._seconds >= _SPAN_S and self._steps >= _STEPS

    def _is_pause(self, own_s: float) -> bool:
        usual_s = self._seconds / self._steps if self._steps else self._period_s
        return usual_s is not None and own_s > _PAUSE_STEPS * usual_s

    def look(self) -> bool:
        """A stretch is complete. True when training has been different for long enough to search again."""
        wait_s, period_s = self._wait_s / self._steps, self._seconds / self._steps
        self._since_s += self._seconds
        self._begin_stretch()
        if self._period_s is None:
            self._period_s, self._usual_wait_s = period_s, wait_s
            return False
        change_s = abs(wait_s - self._usual_wait_s)
        is_strange = change_s > _FAR * min(self._period_s, period_s)
        self._strange = self._strange + 1 if is_strange else 0
        return self._strange >= _LOOKS and self._since_s >= self._pause_s
