"""What monitored loaders have delivered so far: process-wide totals, windows, changes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from unstarve.evaluate.monitor.regime_change import RegimeDetector, Shift
from unstarve.model import Cause, RegimeChange, Window


class WindowSum:
    """Adds up steps and returns a window for every `size` of them."""

    __slots__ = ("_begin_ns", "_end_ns", "_samples", "_size", "_step_ns", "_waits_ns", "_windowed")

    def __init__(self, size: int) -> None:
        self._size = size
        self._windowed = 0
        self._start()

    def _start(self) -> None:
        self._waits_ns: list[int] = []
        self._step_ns = 0
        self._samples = 0
        self._begin_ns = 0
        self._end_ns = 0

    def add(self, wait_ns: int, step_ns: int, got_ns: int, samples: int) -> Window | None:
        """Add a step that ended at `got_ns` with a batch of `samples` (−1: unknown)."""
        if not self._waits_ns:
            self._begin_ns = got_ns - step_ns
        self._waits_ns.append(wait_ns)
        self._step_ns += step_ns
        self._end_ns = got_ns
        # One batch of unknown size makes the sum unknown (negative).
        self._samples = -1 if samples < 0 or self._samples < 0 else self._samples + samples
        if len(self._waits_ns) < self._size:
            return None
        window = self.so_far()
        self._windowed += self._size
        self._start()
        return window

    def so_far(self) -> Window | None:
        """Return the unfinished window; None while it is empty."""
        count = len(self._waits_ns)
        if not count:
            return None
        in_order = sorted(self._waits_ns)
        return Window(
            first_step=self._windowed + 1,
            last_step=self._windowed + count,
            begin_ns=self._begin_ns,
            end_ns=self._end_ns,
            wait_s=sum(in_order) / count / 1e9,
            wait_p95_s=in_order[math.ceil(0.95 * count) - 1] / 1e9,
            step_s=self._step_ns / count / 1e9,
            samples=self._samples if self._samples >= 0 else None,
        )


@dataclass(slots=True)
class Totals:
    """All batches that loaders with one name have delivered in this process."""

    loader: str
    batches: int = 0
    samples: int | None = 0
    wait_ns: int = 0
    step_ns: int = 0
    changes: int = 0
    window: Window | None = None
    """The last complete window."""


_totals: dict[str, Totals] = {}


def totals_of(loader: str) -> Totals:
    """Return the totals for a name; a loader that is created again adds to them."""
    return _totals.setdefault(loader, Totals(loader))


def all_totals() -> list[Totals]:
    """Return the totals of every loader ever monitored in this process."""
    return list(_totals.values())


class Meter:
    """Counts the batches of one loader.

    `on_window` is called with every window of `log_interval` steps, `on_change` with every change of the
    wait.
    """

    __slots__ = (
        "_detector",
        "_logged",
        "_on_change",
        "_on_window",
        "_regime",
        "_rest_ns",
        "_why",
        "batches",
        "totals",
        "wait_ns",
        "window",
    )

    def __init__(
        self,
        loader: str,
        log_interval: int,
        detector: RegimeDetector,
        window_steps: int,
        on_window: Callable[[Window], None],
        on_change: Callable[[RegimeChange], None],
        why: Callable[[Shift], Cause | None],
    ) -> None:
        self.totals = totals_of(loader)
        self.batches = 0
        self.wait_ns = 0
        self.window: Window | None = None
        self._logged = WindowSum(log_interval)
        self._detector = detector
        self._regime = WindowSum(window_steps)
        self._rest_ns = 0
        self._on_window, self._on_change, self._why = on_window, on_change, why

    def add(self, wait_ns: int, step_ns: int, got_ns: int, samples: int) -> None:
        """Count a batch delivered at `got_ns`, `step_ns` after the one before; `samples` is −1 if unknown."""
        self.batches += 1
        self.wait_ns += wait_ns
        totals = self.totals
        totals.batches += 1
        totals.wait_ns += wait_ns
        totals.step_ns += step_ns
        totals.samples = None if samples < 0 or totals.samples is None else totals.samples + samples
        window = self._logged.add(wait_ns, step_ns, got_ns, samples)
        if window is not None:
            self.window = totals.window = window
            self._on_window(window)
        window = self._regime.add(wait_ns, step_ns, got_ns, samples)
        shift = None if window is None else self._detector.feed(window)
        if shift is not None:
            totals.changes += 1
            self._on_change(changed(totals.loader, shift, self._why(shift)))

    def keep_rest(self, rest_ns: int) -> None:
        """At the end of an epoch, keep the time spent on its last batch for the next step."""
        self._rest_ns = rest_ns

    def take_rest(self) -> int:
        """Return the time kept from the last epoch, once."""
        rest_ns, self._rest_ns = self._rest_ns, 0
        return rest_ns

    def latest(self) -> Window | None:
        """Return the last complete window, or the unfinished first one."""
        return self.window or self._logged.so_far()


def changed(loader: str, shift: Shift, cause: Cause | None) -> RegimeChange:
    """Turn a shift into the numbers that a person wants."""
    before_s, after_s = (median(w.wait_s for w in windows) for windows in (shift.before, shift.after))
    before_share, after_share = (
        median(w.wait_share or 0.0 for w in windows) for windows in (shift.before, shift.after)
    )
    return RegimeChange(
        loader=loader,
        since_step=shift.after[0].first_step,
        noticed_step=shift.after[-1].last_step,
        before_wait_ms=before_s * 1e3,
        after_wait_ms=after_s * 1e3,
        before_wait_share=before_share,
        after_wait_share=after_share,
        cause=cause,
    )
