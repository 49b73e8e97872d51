"""Threads beside the one that fetches: a pool that a dataset keeps in its worker, say."""

from __future__ import annotations

import time

_EVERY_NS = 5_000_000
_MUCH = 0.1
"""Of the time, computed by other threads."""


class WorkerHelpers:
    """CPU time of a worker's other threads, but for what sends its batches."""

    def __init__(self) -> None:
        self.sending = False
        """A batch is being sent at the moment, by a thread of the worker's queue …"""
        self.sent_cpu_ns = 0
        """… and what that has cost so far, without the one being sent."""
        self._asked_ns = 0
        self._spent_ns = 0
        self._busy = False

    def begin(self) -> None:
        """A fetch begins: whenever they compute, it is for one."""

    def end(self, now_ns: int) -> int:
        """A fetch is over: what they computed since they were asked last; 0 where that is little.

        The clock of a process is not cheap: idle ones are asked now and then, busy ones always.
        """
        since_ns = now_ns - self._asked_ns
        if self.sending or (since_ns < _EVERY_NS and not self._busy):
            return 0
        spent_ns = time.process_time_ns() - time.thread_time_ns() - self.sent_cpu_ns
        computed_ns = spent_ns - self._spent_ns
        self._busy = self._asked_ns > 0 and computed_ns > _MUCH * since_ns
        self._asked_ns, self._spent_ns = now_ns, spent_ns
        return computed_ns if self._busy else 0
