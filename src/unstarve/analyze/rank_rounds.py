"""A rank's record → its rounds: what it did from one exchange with the other ranks to the next.

    exchange ─ after ─ data ─ forward ─ backward ─ blocked ─ exchange
               optimizer  wait for                   for the ranks that
               checkpoint a batch                    come later

All ranks leave an exchange together. So the rank whose own parts take longest in a round is the one that the
others are blocked for, and clocks of different machines are never compared.

On an accelerator the host is hardly ever blocked, and in runs of old versions the exchanges are not recorded.
Ranks that train together take the same time for a round all the same: what a rank waited for data is its own,
and the shortest rest of all ranks stands for the work.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unstarve.analyze.timeline import Timeline
from unstarve.model import Batch, Meeting, Process

AFTER, DATA, FORWARD, BACKWARD, BLOCKED, QUEUED = range(6)
"""Rows of `RankRounds.parts`: the first five add up to the round, the last is a part of them."""
OWN = slice(AFTER, BLOCKED)
_EPOCH_BITS = 32
_HARDLY_BLOCKED_S = 0.001
_HARDLY_BLOCKED = 0.02
"""Of a round. If no rank is blocked for longer, its batches are parts of a larger one: gradients accumulate."""

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class RankRounds:
    """The rounds of one rank: a column each."""

    rank: int
    host: str
    keys: Array
    """Epoch and position of the batch in one number; ranks are matched by it."""
    steps: Array
    """Steps of the round: 1, or as many as were folded into it."""
    parts: Array
    """Seconds, a row for each of `AFTER` … `QUEUED`."""
    nbytes: Array
    """Of the batch; NaN when unknown."""
    floor: Array
    """Seconds blocked in the shortest of its steps, times the steps: the exchange itself."""
    begin_ns: Array
    end_ns: Array
    seen: bool
    """Whether it is known how long it was blocked."""


@dataclass(frozen=True, slots=True, eq=False)
class JointRounds:
    """The rounds that all ranks took: arrays with a row per rank and a column per round."""

    ranks: tuple[RankRounds, ...]
    keys: Array
    steps: Array
    parts: Array
    """By part, rank and round."""
    nbytes: Array
    floor: Array
    seen: bool

    @property
    def own(self) -> Array:
        """Seconds that each rank took by itself."""
        found: Array = self.parts[OWN].sum(axis=0)
        return found

    @property
    def rounds_s(self) -> Array:
        """Seconds that a round took, for all ranks together."""
        found: Array = np.median(self.parts[:QUEUED].sum(axis=0), axis=0)
        return found

    @property
    def begins_epoch(self) -> Array:
        found: Array = (self.keys & ((1 << _EPOCH_BITS) - 1)) == 0
        return found


def key_of(batch: Batch) -> int:
    """What batches of different ranks are matched by."""
    return batch.epoch << _EPOCH_BITS | batch.position


def rounds_of(timeline: Timeline) -> RankRounds | None:
    """The measured rounds of a rank; None without any."""
    process, batches = timeline.process, timeline.batches
    if not timeline.measured_batches or timeline.process.rank is None:
        return None
    met = _by_batch(batches, process.meetings)
    seen = process.device == "cpu" and any(one is not None and one.count for one in met)
    starts = _starts(timeline)
    stalls = {(s.epoch, s.position): s.stall_ns for s in process.stalls if s.loader == timeline.main}
    first = max(len(batches) - len(timeline.measured_batches), 1)
    rows: list[tuple[float, ...]] = []
    for at in range(first, len(batches)):
        batch, last, now = batches[at], met[at - 1] if seen else None, met[at] if seen else None
        begin_ns = starts[at] if not seen else _left_ns(last, batches[at - 1], starts[at])
        next_ns = starts[at + 1] if at + 1 < len(batches) else None
        end_ns = next_ns if not seen else _left_ns(now, batch, next_ns)
        if begin_ns is None or end_ns is None:
            continue
        blocked_ns = 0 if last is None else last.after_ns
        after_ns = starts[at] - begin_ns - blocked_ns
        data_ns = batch.got_ns - starts[at]
        if (epoch_stall_ns := stalls.get((batch.epoch, batch.position))) is not None:
            data_ns = min(epoch_stall_ns, data_ns)
        backward_ns = 0
        if now is not None:
            blocked_ns += now.before_ns + now.within_ns
            backward_ns = now.end_ns - now.begin_ns - now.within_ns
        forward_ns = end_ns - begin_ns - after_ns - data_ns - backward_ns - blocked_ns
        queued_ns = (batch.step_queued_ns or 0) if at else 0
        parts_ns = (after_ns, data_ns, forward_ns, backward_ns, blocked_ns, queued_ns)
        size = float("nan") if batch.nbytes is None else batch.nbytes
        rows.append((key_of(batch), begin_ns, end_ns, size, *parts_ns))
    if not rows:
        return None
    table = np.array(rows, dtype=np.float64).T
    parts = np.maximum(table[4:], 0) / 1e9
    keys, begin, end = (np.array([row[at] for row in rows], dtype=np.int64) for at in range(3))
    return RankRounds(
        process.rank or 0,
        process.host,
        keys,
        np.ones(len(rows)),
        parts,
        table[3],
        parts[BLOCKED],
        begin,
        end,
        seen,
    )


def folded_rounds(process: Process) -> RankRounds | None:
    """The rounds of a rank whose steps were folded into windows; None without any."""
    folded = process.folded
    if folded is None or process.rank is None or not len(folded.epochs):
        return None
    epochs, positions, steps, *parts, least, nbytes = (np.asarray(column) for column in folded)
    times = np.array(parts, dtype=np.float64) / 1e6
    nothing = np.zeros(len(epochs), dtype=np.int64)
    return RankRounds(
        process.rank,
        process.host,
        epochs.astype(np.int64) << _EPOCH_BITS | positions,
        steps.astype(np.float64),
        times,
        np.where(nbytes > 0, nbytes, np.nan),
        least / 1e6 * steps,
        nothing,
        nothing,
        seen=bool(times[BLOCKED].any()),
    )


def joined(ranks: Sequence[RankRounds]) -> JointRounds | None:
    """The rounds that all ranks took; None without any."""
    keys = ranks[0].keys
    for one in ranks[1:]:
        keys = np.intersect1d(keys, one.keys)
    if not len(keys):
        return None
    places = [np.searchsorted(one.keys, keys) for one in ranks]
    seen = all(one.seen for one in ranks)
    parts = np.stack([one.parts[:, at] for one, at in zip(ranks, places, strict=True)], axis=1)
    if not seen:
        work = parts[FORWARD] + parts[BACKWARD] + parts[AFTER] + parts[BLOCKED]
        shortest = work.min(axis=0)
        parts[AFTER] = parts[BACKWARD] = 0
        parts[FORWARD], parts[BLOCKED] = shortest, work - shortest
    nbytes = np.stack([one.nbytes[at] for one, at in zip(ranks, places, strict=True)])
    floor = np.stack([one.floor[at] for one, at in zip(ranks, places, strict=True)])
    steps = ranks[0].steps[places[0]]
    return _accumulated(JointRounds(tuple(ranks), keys, steps, parts, nbytes, floor, seen))


def _accumulated(joint: JointRounds) -> JointRounds:
    """The same with rounds that end without an exchange added to the next one that has one."""
    blocked = joint.parts[BLOCKED].max(axis=0)
    meets = blocked > np.minimum(_HARDLY_BLOCKED * joint.rounds_s, _HARDLY_BLOCKED_S)
    meets[-1] = True
    ends = np.flatnonzero(meets)
    if not joint.seen or len(ends) == len(meets) or len(ends) < len(meets) / 64 or len(ends) < 40:
        return joint
    begins = np.concatenate([[0], ends[:-1] + 1])
    return JointRounds(
        joint.ranks,
        joint.keys[begins],
        np.add.reduceat(joint.steps, begins),
        np.add.reduceat(joint.parts, begins, axis=2),
        np.add.reduceat(joint.nbytes, begins, axis=1),
        np.add.reduceat(joint.floor, begins, axis=1),
        joint.seen,
    )


def _by_batch(batches: Sequence[Batch], meetings: Sequence[Meeting]) -> list[Meeting | None]:
    """For each batch, what happened from its delivery to the next request for one of its loader."""
    found: list[Meeting | None] = [None] * len(batches)
    gots = [batch.got_ns for batch in batches]
    for one in meetings:
        at = bisect_right(gots, one.at_ns) - 1
        if at >= 0:
            before = found[at]
            found[at] = one if before is None else _both(before, one)
    return found


def _both(a: Meeting, b: Meeting) -> Meeting:
    """Another loader was asked for a batch in between."""
    if not a.begin_ns:
        return b._replace(count=a.count + b.count, before_ns=a.before_ns + b.before_ns)
    blocked_ns = b.before_ns + b.within_ns + b.after_ns
    if not b.begin_ns:
        left_ns = max(a.left_ns, b.left_ns)
        return a._replace(
            count=a.count + b.count, after_ns=a.after_ns + blocked_ns, left_ns=left_ns, at_ns=b.at_ns
        )
    within_ns = a.within_ns + a.after_ns + b.before_ns + b.within_ns
    return b._replace(
        count=a.count + b.count, begin_ns=a.begin_ns, before_ns=a.before_ns, within_ns=within_ns
    )


def _starts(timeline: Timeline) -> list[int]:
    """When each batch was asked for; the first of an epoch when the epoch began."""
    begins = {e.epoch: e.begin_ns for e in timeline.process.epochs if e.loader == timeline.main}
    return [b.ask_ns if b.position else begins.get(b.epoch, b.ask_ns) for b in timeline.batches]


def _left_ns(met: Meeting | None, batch: Batch, next_ns: int | None) -> int | None:
    """When a rank left the exchange of a step; without one, when the step was over."""
    if met is not None and met.end_ns:
        return met.end_ns
    if met is not None and met.count:
        return met.left_ns
    return next_ns
