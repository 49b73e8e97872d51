"""Detect when the wait for data changes for good, and find its cause if this process is being recorded."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from unstarve.analyze.step_series import most_changed, series_of
from unstarve.collect.recorder import recorder
from unstarve.model import Cause, Window
from unstarve.record.run_file import run_of_parts
from unstarve.record.run_reader import read_run


@dataclass(frozen=True, slots=True)
class Shift:
    """The windows before a change, and those that confirmed it."""

    before: tuple[Window, ...]
    after: tuple[Window, ...]


class RegimeDetector:
    """Compares each window with the first windows of the current regime, after one window of warm-up.

    A change counts when `confirm` windows in a row wait `factor` times as long as the reference's median (or
    that much shorter), lie outside all but one of its windows, and differ by at least `least_share` of a
    step. So neither a hiccup nor one odd reference window counts, and waits that double from almost nothing
    are ignored. After a change the new level is the reference: coming back takes the same factor, and noise
    in between is not reported twice. A slow drift is noticed once it has moved far enough from where it
    began.
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
        """Take the next window; return the shift once it is confirmed."""
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
        """Return 1 for a longer wait, −1 for a shorter one, 0 for an unchanged one."""
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


_MOST_BYTES = 64_000_000
"""A larger record takes seconds to read, and training would have to wait."""


def what_changed(shift: Shift) -> Cause | None:
    """Return the cause whose share of the wait changed most; None if this process is not being recorded."""
    try:
        return _from_record(shift)
    except Exception as error:  # an unreadable record must not stop training
        logging.getLogger(__name__).debug("the cause of a change is unknown: %r", error)
        return None


def _from_record(shift: Shift) -> Cause | None:
    owner = recorder()
    if owner is None or not owner.active:
        return None
    owner.flush(time.perf_counter_ns())
    parts = Path(owner.settings.parts)
    if sum(part.stat().st_size for part in parts.iterdir()) > _MOST_BYTES:
        return None
    before, after = ((windows[0].begin_ns, windows[-1].end_ns) for windows in (shift.before, shift.after))
    own = [one for one in series_of(read_run(run_of_parts(parts))) if one.pid == os.getpid()]
    # The recorder names loaders differently: take the one that delivered most when the change came.
    busiest = max(own, key=lambda s: sum(after[0] <= p.got_ns <= after[1] for p in s.points), default=None)
    return None if busiest is None else most_changed(busiest, before, after)
