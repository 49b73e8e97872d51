"""The lines that allocate what stays: for a window of time, Python's own tracing of allocations.

Python code that does nothing but allocate runs more than ten times as slow meanwhile
(`bench/memory_look.py`), so it is done on request only and stops after `_WINDOW_S`. Two states are compared:
what was traced and alive when the window had settled, and what is alive later. Memory that C or C++ code
allocates without telling Python, as torch does, is not seen; numpy's is.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

from unstarve.collect.call_site import short
from unstarve.collect.loader_origin import is_of_user

_WINDOW_S = 20.0
_SETTLE_S = 1.0
"""Until then, queues and caches fill."""
_FRAMES = 3
"""Innermost ones of which the user's is looked for; each makes tracing slower."""
_COST = 20
"""Comparing takes at most one part in so many of the time: it holds the interpreter lock."""
_MOST_SITES = 10
_SMALL_BYTES = 4096
_MOST_SMALL = 5_000

Site = tuple[str, int]
"""File and line."""

_ours = False
"""This process, or the one that it was forked from, has started the tracing; the user's own is left alone."""


class AllocationSites:
    """Traces the allocations of this process."""

    def __init__(self, meta: Callable[..., object]) -> None:
        self._meta = meta
        self._began_s: float | None = None
        self._before: dict[Site, tuple[int, int]] | None = None
        self._settled_s = 0.0
        self._next_s = 0.0
        self._over = False

    def look(self) -> None:
        """Go on: called at every look at the memory."""
        now_s = time.perf_counter()
        if self._over or now_s < self._next_s:
            return
        if self._began_s is None:
            self._begin(now_s)
        elif self._before is None:
            self._before, self._settled_s = alive_by_site(), now_s
            self._next_s = now_s + _COST * (time.perf_counter() - now_s)
        else:
            self._tell(self._before, now_s)
            self._next_s = now_s + _COST * (time.perf_counter() - now_s)
            if now_s - self._began_s > _WINDOW_S:
                self.close()

    def close(self) -> None:
        """Stop tracing."""
        global _ours
        if not self._over and self._began_s is not None:
            tracemalloc.stop()
            _ours = False
        self._over = True

    def _begin(self, now_s: float) -> None:
        global _ours
        if tracemalloc.is_tracing() and not _ours:
            self._over = True
            return
        _ours = True
        tracemalloc.start(_FRAMES)
        tracemalloc.clear_traces()  # those of the process that this one was forked from
        self._began_s, self._next_s = now_s, now_s + _SETTLE_S

    def _tell(self, before: dict[Site, tuple[int, int]], now_s: float) -> None:
        grown = []
        for (file, line), (nbytes, count) in alive_by_site().items():
            bytes_before, count_before = before.get((file, line), (0, 0))
            if nbytes > bytes_before and count > count_before:
                grown.append((short(file), line, nbytes - bytes_before, count - count_before))
        grown.sort(key=lambda site: -site[2])
        self._meta("allocated", seconds=now_s - self._settled_s, sites=grown[:_MOST_SITES])


def alive_by_site() -> dict[Site, tuple[int, int]]:
    """Bytes and blocks that were traced and are alive, by the user's line that asked for them.

    Of very many small blocks, some stand for all.
    """
    # Not `Snapshot.traces` itself: it makes objects of each of perhaps a million traces.
    traces = tracemalloc.take_snapshot().traces._traces  # type: ignore[attr-defined]  # (domain, bytes, frames, …)
    small = [trace for trace in traces if trace[1] < _SMALL_BYTES]
    every = len(small) // _MOST_SMALL + 1
    found: dict[Site, tuple[int, int]] = {}
    for stands_for, some in ((every, small[::every]), (1, [t for t in traces if t[1] >= _SMALL_BYTES])):
        for trace in some:
            site = next((one for one in trace[2] if is_of_user(one[0])), None)  # the innermost comes first
            if site is not None:
                nbytes, count = found.get(site, (0, 0))
                found[site] = nbytes + trace[1] * stands_for, count + stands_for
    return found
