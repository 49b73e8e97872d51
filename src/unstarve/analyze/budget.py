"""Spans → seconds per cause. The seconds sum to the wall time by construction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from unstarve.analyze.timeline import Doing, Span
from unstarve.model import Cause, Share

_CAUSES = {
    Doing.START: Cause.STARTUP,
    Doing.WAIT: Cause.UNKNOWN,
    Doing.STEP: Cause.COMPUTE,
    Doing.BETWEEN: Cause.HOST,
}


def budget(spans: Iterable[Span], ranks: int = 1) -> tuple[Share, ...]:
    """Seconds per cause, largest first; over several ranks, the mean of one."""
    seconds: defaultdict[Cause, float] = defaultdict(float)
    for span in spans:
        seconds[_CAUSES[span.doing]] += span.seconds / ranks
    total = sum(seconds.values())
    shares = [Share(cause, value, value / total if total else 0.0) for cause, value in seconds.items()]
    return tuple(sorted(shares, key=lambda share: -share.seconds))
