"""Batch times → `Window`: so many steps at a time, with no memory of those before."""

from __future__ import annotations

import math

from unstarve.model import Window


class WindowSum:
    """Adds up steps and hands a window out when it has `size` of them."""

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
        """One more step, that ended at `got_ns` with a batch of `samples` (−1: not known)."""
        if not self._waits_ns:
            self._begin_ns = got_ns - step_ns
        self._waits_ns.append(wait_ns)
        self._step_ns += step_ns
        self._end_ns = got_ns
        # One batch of unknown size makes the sum unknown: it stays negative.
        self._samples = -1 if samples < 0 or self._samples < 0 else self._samples + samples
        if len(self._waits_ns) < self._size:
            return None
        window = self.so_far()
        self._windowed += self._size
        self._start()
        return window

    def so_far(self) -> Window | None:
        """The window as it is now; None while it is empty."""
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
