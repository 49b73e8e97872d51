"""Has waiting for data become another matter? Judged on windows of steps, slow to believe it."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from unstarve.model import Window


@dataclass(frozen=True, slots=True)
class Shift:
    """The windows of the regime before, and those that showed the new one."""

    before: tuple[Window, ...]
    after: tuple[Window, ...]


class RegimeDetector:
    """Compares each window with the first ones of the present regime, after one window of warm-up.

    A change counts when `confirm` windows in a row wait `factor` times as long as the reference's median
    (or that much shorter), lie outside all but one of its windows, and the difference is at least
    `least_share` of a step. So a hiccup changes nothing, a single odd window of the reference neither, and
    waits that double from nothing to next to nothing are no news. From a change on, the new level is the
    reference: it takes the same factor to come back, and noise in between is not reported twice.
    A slow drift is noticed when it has come far enough from where it began.
    """

    def __init__(
        self, factor: float = 2.0, reference: int = 5, confirm: int = 3, least_share: float = 0.05
    ) -> None:
        self._factor = factor
        self._size = reference
        self._confirm = confirm
        self._least_share = least_share
        self._warm = False
        self._reference: list[Window] = []
        self._odd: list[Window] = []
        """Windows in a row that differ from the reference in one direction."""
        self._direction = 0

    def feed(self, window: Window) -> Shift | None:
        """The next window; what has changed, once that is sure."""
        if not self._warm:
            self._warm = True
            return None
        if len(self._reference) < self._size:
            self._reference.append(window)
            return None
        direction = self._compared(window)
        if direction != self._direction:
            self._odd.clear()
        self._direction = direction
        if direction == 0:
            return None
        self._odd.append(window)
        if len(self._odd) < self._confirm:
            return None
        shift = Shift(tuple(self._reference), tuple(self._odd))
        self._reference, self._odd, self._direction = self._odd, [], 0
        return shift

    def _compared(self, window: Window) -> int:
        """1 for a longer wait, −1 for a shorter one, 0 for one like before."""
        waits_s = sorted(one.wait_s for one in self._reference)
        typical_s = median(waits_s)
        step_s = max(window.step_s, median(one.step_s for one in self._reference))
        if abs(window.wait_s - typical_s) < self._least_share * step_s:
            return 0
        if window.wait_s >= self._factor * typical_s and window.wait_s > waits_s[-2]:
            return 1
        if window.wait_s * self._factor <= typical_s and window.wait_s < waits_s[1]:
            return -1
        return 0
