"""How long to wait for another process that may never get on again: stopped, or gone without a word."""

from __future__ import annotations

import time

STALLED_S = 60.0
"""Without one more sample: then whoever reads them counts as stopped, at worst they are read twice."""
ANSWER_S = 5.0
"""Without an answer: whoever holds the name of a shared region and does not make one is no rank of ours."""
POLL_S = 0.01


class Patience:
    """Runs out when what is seen of the other has not changed for so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen: object = None
        self._since_s = time.monotonic()

    def is_over(self, seen: object = None) -> bool:
        """Look once more: `seen` is anything that changes while the other gets on."""
        now = time.monotonic()
        if seen != self._seen:
            self._seen = seen
            self._since_s = now
        return now - self._since_s >= self._seconds
