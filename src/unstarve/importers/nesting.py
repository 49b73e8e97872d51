"""Which event lies inside which, on one thread: operators, Python functions, and the moments in them."""

from __future__ import annotations

import numpy as np

from unstarve.importers.capture import Column, Times


def enclosing(column: Column, chosen: np.ndarray) -> Times:
    """For each event, the innermost chosen event around it on its thread; −1 where there is none."""
    begin, end, thread = column.begin.tolist(), column.end.tolist(), column.of("thread").tolist()
    encloses = chosen.tolist()
    found = np.full(len(begin), -1, np.int64)
    open_: list[int] = []
    last_thread = None
    for at in np.lexsort((-column.end, column.begin, column.of("thread"))).tolist():
        if thread[at] != last_thread:
            open_, last_thread = [], thread[at]
        while open_ and end[open_[-1]] <= begin[at]:
            open_.pop()
        if open_ and end[at] <= end[open_[-1]]:
            found[at] = open_[-1]
        if encloses[at]:
            open_.append(at)
    return found


def innermost(column: Column, chosen: np.ndarray, around: Times, threads: Times, moments: Times) -> Times:
    """For each moment on a thread, the innermost chosen event around it; −1 where there is none.

    `around` comes from `enclosing`, for the same events.
    """
    found = np.full(len(moments), -1, np.int64)
    for thread in np.unique(threads):
        mine = np.flatnonzero(threads == thread)
        own = np.flatnonzero(chosen & (column.of("thread") == thread))
        if not len(own):
            continue
        order = own[np.lexsort((-column.end[own], column.begin[own]))]
        before = np.searchsorted(column.begin[order], moments[mine], side="right") - 1
        inner = np.where(before >= 0, order[before], -1)
        while (over := (inner >= 0) & (column.end[inner] < moments[mine])).any():
            inner[over] = around[inner[over]]  # that one had ended: look outward
        found[mine] = inner
    return found
