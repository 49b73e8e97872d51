"""What the ranks of a training record beyond their batches: where they meet, and steps folded together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Meeting(NamedTuple):
    """How long a rank was blocked in collectives since the batch before; 0 for what did not happen."""

    calls: int
    begin_ns: int
    """The first backward pass began."""
    end_ns: int
    before_ns: int
    """Blocked before the first backward pass, or in a step without one."""
    within_ns: int
    """Blocked in backward passes."""
    after_ns: int
    """Blocked after the last one."""
    left_ns: int
    """The last exchange was over."""
    at_ns: int
    """The next batch was asked for."""


class FoldedSteps(NamedTuple):
    """The steps of a rank in windows of equal length; a column per field, times in microseconds."""

    epochs: Sequence[int]
    positions: Sequence[int]
    """Of the first batch of a window."""
    steps: Sequence[int]
    after_us: Sequence[int]
    """From the exchange with the other ranks to the request for the next batch."""
    data_us: Sequence[int]
    """Waiting for batches."""
    forward_us: Sequence[int]
    backward_us: Sequence[int]
    blocked_us: Sequence[int]
    """Waiting for other ranks, and for the exchange itself."""
    queued_us: Sequence[int]
    """Part of the others in which the rank was runnable but had no core."""
    least_us: Sequence[int]
    """The shortest time blocked of a step."""
    nbytes: Sequence[int]
    """Mean bytes of a batch; 0 when unknown."""
