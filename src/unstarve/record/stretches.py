"""Which steps of a long run stay one by one, and which rows of the others belong together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unstarve.model.thinned import GROWTH
from unstarve.record import format as f
from unstarve.record.rows import Mask, Rows

Numbers = NDArray[np.int64]
Interval = tuple[int, int]

FOR_EVER = 2**63 - 1

_MOST_IN_FULL = 12_000
"""A training process with fewer batches is not thinned."""
_CHANGES = 16
_CHANGED = 1.25
"""The mean step of a stretch, relative to the stretch before."""
_FEWEST_TO_CHANGE = 8


class Detail(NamedTuple):
    """How much of a training process is kept. The defaults are those of a report."""

    batches: int = 4096
    """One by one, at most about this many."""
    stretches: int = 512
    """At most; the rest becomes a row for each loader and stretch."""
    above: int = _MOST_IN_FULL
    """A training process with fewer batches keeps them all."""


class Counted(NamedTuple):
    """What each row stands for: a row that is not thinned, for itself."""

    number: Numbers
    samples: Numbers
    end_ns: Numbers
    steps: Numbers
    step_ns: Numbers
    backwards: Numbers


def chosen(rows: Rows, stands: Counted, length_ns: int, detail: Detail) -> Mask:
    """The rows to keep one by one."""
    ideal = (rows["flags"] & (f.REPLAY | f.SETTLING) != 0) | (rows["block"] > 0)
    chosen: Mask = ideal | (rows["position"] == 0)
    count, most = len(rows), detail.batches
    chosen[: most // 16] = True
    chosen[max(count - most // 4, 0) :] = True
    later = np.where(chosen | ((rows["flags"] & f.THINNED) > 0), -1, 1)
    for durations in (waits_of(rows), stands.step_ns):
        slowest = np.argsort(durations * (later > 0), kind="stable")[::-1][: most // 64]
        slowest = slowest[later[slowest] > 0]
        for near in (-1, 0, 1):
            chosen[np.clip(slowest + near, 0, count - 1)] = True
    for edge in _changes(rows, stands, length_ns):
        chosen[max(edge - 16, 0) : edge + 16] = True
    return chosen | _spread_out(rows, length_ns, detail)


def waits_of(rows: Rows) -> Numbers:
    """How long the training process waited for each batch."""
    found: Numbers = (rows["got_ns"] - rows["ask_ns"]).astype(np.int64)
    return found


def _changes(rows: Rows, stands: Counted, length_ns: int) -> list[int]:
    """Where the mean step changed the most from one stretch to the next."""
    first = np.unique(rows["ask_ns"] // length_ns, return_index=True)[1]
    steps, step_ns = np.add.reduceat(stands.steps, first), np.add.reduceat(stands.step_ns, first)
    mean_ns = step_ns / np.maximum(steps, 1)
    enough = (steps >= _FEWEST_TO_CHANGE) & (mean_ns > 0)
    first, mean_ns = first[enough], mean_ns[enough]
    change = np.abs(np.diff(np.log(mean_ns)))
    order = np.argsort(change)[::-1][:_CHANGES]
    return [int(first[one + 1]) for one in order if change[one] > np.log(_CHANGED)]


def _spread_out(rows: Rows, length_ns: int, detail: Detail) -> Mask:
    """The first few batches of every loader in every 8th part or so of the stretches."""
    block_ns = min(length_ns * max(detail.stretches // 64, 1), FOR_EVER)
    loaders = len(np.unique(rows["loader"]))
    few = max(detail.batches // 128 // loaders, 4)
    block = rows["ask_ns"] // block_ns
    order = np.lexsort((rows["ask_ns"], rows["loader"], block))
    loader, block = rows["loader"][order], block[order]
    new = np.concatenate([[True], (loader[1:] != loader[:-1]) | (block[1:] != block[:-1])])
    place = np.arange(len(rows))
    rank = place - np.maximum.accumulate(np.where(new, place, 0))
    chosen = np.zeros(len(rows), bool)
    chosen[order[rank < few]] = True
    return chosen


def groups_of(rows: Rows, kept: Mask, cuts: Numbers, length_ns: int) -> Numbers:
    """By row that is not kept: the number of its group."""
    others = np.flatnonzero(~kept)
    parts = [
        np.cumsum(kept)[others],
        rows["ask_ns"][others] // length_ns,
        np.searchsorted(cuts, rows["ask_ns"][others].astype(np.int64), "right"),
        *(rows[name][others] for name in ("thread", "loader", "epoch")),
        rows["flags"][others] & ~np.uint16(f.THINNED),
    ]
    return numbered(parts)[0]


def numbered(parts: Sequence[NDArray[Any]]) -> tuple[Numbers, Numbers]:
    """Rows with the same key → their number; and the first row of each, in the order of these firsts."""
    keys = np.stack([part.astype(np.int64) for part in parts], axis=1)
    if not len(keys):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    order = np.lexsort(keys.T[::-1])
    new = np.concatenate([[True], (keys[order][1:] != keys[order][:-1]).any(axis=1)])
    first = order[new]
    number = np.empty(len(keys), np.int64)
    number[order] = np.cumsum(new) - 1
    rank = np.argsort(np.argsort(first))
    return rank[number], np.sort(first)


def sums_of(
    values: NDArray[Any], groups: Numbers, *, unsure: bool = False, most: int | None = None
) -> Numbers:
    """Sums of each group; with `unsure`, -1 where any value is unknown or the sum is beyond `most`."""
    count = int(groups.max()) + 1 if len(groups) else 0
    found = np.zeros(count, np.int64)
    np.add.at(found, groups, values.astype(np.int64))
    if unsure:
        unknown = np.bincount(groups[values < 0], minlength=count) > 0
        found[unknown | (found > (most if most is not None else found))] = -1
    return found


def firsts_of(groups: Numbers) -> Numbers:
    """The first row of each group."""
    return np.unique(groups, return_index=True)[1]


def joined(intervals: Iterable[Interval]) -> list[Interval]:
    """In order, without overlaps."""
    joined: list[Interval] = []
    for begin, end in sorted(intervals):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def overlapping(begin: NDArray[Any], end: NDArray[Any], intervals: Sequence[Interval]) -> Mask:
    """Which of these stretches of time lie, at least partly, inside an interval."""
    ends = np.array([interval[1] for interval in intervals], np.int64)
    begins = np.array([*(interval[0] for interval in intervals), FOR_EVER], np.int64)
    return begins[np.searchsorted(ends, begin.astype(np.int64))] <= end.astype(np.int64)


def one_after_the_other(ask_ns: Numbers, wait_ns: Numbers) -> Numbers:
    """When each wait begins, if it must not begin before the one before has ended."""
    until = np.cumsum(wait_ns)
    begun: Numbers = np.maximum.accumulate(ask_ns - (until - wait_ns)) + (until - wait_ns)
    return begun


def bucket_of(durations_ns: Numbers) -> Numbers:
    """The number of the histogram's bucket for each duration."""
    found: Numbers = np.floor(np.log(np.maximum(durations_ns, 1)) / np.log(GROWTH)).astype(np.int64)
    return found
