"""After tuning: has waiting changed, so that another search is due?"""

from __future__ import annotations

_STRETCH_S = 3.0
_STRETCH_STEPS = 20
"""A stretch has at least this many seconds and steps."""
_CHANGE = 0.15
"""A search is due when waiting has changed by this share of the time per step, …"""
_STRETCHES = 3
"""… this many stretches in a row, …"""
_FIRST_INTERVAL_S = 10.0
_LAST_INTERVAL_S = 600.0
"""… and this long after the last search: twice as long each time, as some machines change all the time."""
_PAUSE_S = 1.0
_PAUSE_STEPS = 20
"""A step that takes this long, and as long as this many steps, is none: training validates or saves."""


class ChangeWatch:
    """Notices after tuning that waiting has changed: a cache is warm now, or another job has started.

    It compares stretches of steps with the first one after tuning, at the cost of two additions per step.
    """

    def __init__(self) -> None:
        self._interval_s = _FIRST_INTERVAL_S / 2
        self._restart()

    def _restart(self) -> None:
        self._since_s = 0.0
        self._different = 0
        self._begin_stretch()
        self._period_s: float | None = None
        self._usual_wait_s = 0.0

    def _begin_stretch(self) -> None:
        self._wait_s = self._seconds = 0.0
        self._steps = 0

    def settle(self) -> None:
        """Tuning has ended: take the next stretch as usual, and wait longer than last time."""
        self._restart()
        self._interval_s = min(self._interval_s * 2, _LAST_INTERVAL_S)

    def add(self, wait_s: float, step_s: float) -> bool:
        """Add a step: its wait and its whole time. True when a stretch is complete."""
        if step_s - wait_s > _PAUSE_S and self._is_pause(step_s - wait_s):
            self._begin_stretch()  # batches lie ready after it
            return False
        self._wait_s += wait_s
        self._seconds += step_s
        self._steps += 1
        return self._seconds >= _STRETCH_S and self._steps >= _STRETCH_STEPS

    def _is_pause(self, loop_s: float) -> bool:
        usual_s = self._seconds / self._steps if self._steps else self._period_s
        return usual_s is not None and loop_s > _PAUSE_STEPS * usual_s

    def has_changed(self) -> bool:
        """Compare a complete stretch. True if training has been different long enough to search again."""
        wait_s, period_s = self._wait_s / self._steps, self._seconds / self._steps
        self._since_s += self._seconds
        self._begin_stretch()
        if self._period_s is None:
            self._period_s, self._usual_wait_s = period_s, wait_s
            return False
        change_s = abs(wait_s - self._usual_wait_s)
        is_different = change_s > _CHANGE * min(self._period_s, period_s)
        self._different = self._different + 1 if is_different else 0
        return self._different >= _STRETCHES and self._since_s >= self._interval_s
