"""How far ahead of a training loop to read, where nothing but the loop itself says it.

Reading ahead hides what reading takes behind the training step, and keeps storage busy. For data that is in
memory already, before a loop that does nothing with it, there is nothing to hide: the batches that wait push
each other out of the CPU's caches, and the hand-off between threads is all that is left to notice.
"""

from __future__ import annotations

import resource

FEW = 2
"""Batches: one is read while another is worked on."""
MANY = 6
"""Batches that come from storage, which serves several at once in the time of one."""
THREADS = 4
"""For `MANY`: the others are read already, or begun as soon as a thread is free."""
_STEP_SHARE = 0.25
"""Of the time that a batch takes to read: a shorter step has nothing to hide it behind."""
_WEIGHT = 0.3
"""Of the newest, in what is taken as typical."""


class Pace:
    """Told when a batch is asked for and given, and how long it took to make. Times are in seconds."""

    def __init__(self) -> None:
        self.ahead = FEW
        self._make_s: float | None = None
        self._step_s: float | None = None
        self._given_s: float | None = None
        self._blocks = _blocks_read()

    def begins(self) -> None:
        """Note that an epoch begins: what lies between two of them is no step."""
        self._given_s = None
        self._blocks = _blocks_read()

    def asks(self, now_s: float) -> None:
        """Note that the loop wants its next batch: what lies since the last was its step."""
        if self._given_s is not None:
            self._step_s = _typical(self._step_s, now_s - self._given_s)

    def gives(self, now_s: float, make_s: float | None) -> None:
        """Note that the loop gets a batch that took `make_s` to make; None where that is not known."""
        self._given_s = now_s
        if make_s is not None:
            self._make_s = _typical(self._make_s, make_s)
        blocks = _blocks_read()
        from_storage, self._blocks = blocks > self._blocks, blocks
        if from_storage:
            self.ahead = MANY
        elif self._make_s is not None and self._step_s is not None:
            self.ahead = FEW if self._step_s > _STEP_SHARE * self._make_s else 0


def _typical(before_s: float | None, newest_s: float) -> float:
    return newest_s if before_s is None else (1 - _WEIGHT) * before_s + _WEIGHT * newest_s


def _blocks_read() -> int:
    """Blocks that this process has had read from storage so far, its other threads included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_inblock
