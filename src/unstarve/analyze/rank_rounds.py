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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from unstarve.analyze.timeline import Timeline, TimeSpan
from unstarve.model import Batch, Doing, FoldedSteps, Meeting, Process

AFTER, DATA, FORWARD, BACKWARD, BLOCKED, QUEUED, ASIDE = range(7)
"""Rows of `RankRounds.parts`: the first five add up to the round, the others are parts of them."""
OWN = slice(AFTER, BLOCKED)
_EPOCH_BITS = 32
_MOST = (1 << 32) - 1
_HARDLY_BLOCKED_S = 0.001
_HARDLY_BLOCKED = 0.02
"""Of a round. If no rank is blocked for longer, gradients accumulate: its batch is a part of a larger one."""
_FEWEST_MEETINGS = 10
"""With fewer, a round is a step whether ranks meet in it or not."""

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
    """Seconds, a row for each of `AFTER` … `ASIDE`."""
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
    batches: Array
    """Keys of all batches in these rounds."""
    keys: Array
    """Of the first batch of each round."""
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
    def free_s(self) -> Array:
        """Seconds that a round would take if loading were free on all ranks."""
        rounds_s = self.rounds_s
        exchange_s = np.maximum(rounds_s - self.own.max(axis=0), 0)
        found: Array = np.minimum((self.own - self.parts[DATA]).max(axis=0) + exchange_s, rounds_s)
        return found

    @property
    def begins_epoch(self) -> Array:
        found: Array = (self.keys & ((1 << _EPOCH_BITS) - 1)) == 0
        return found


def key_of(batch: Batch) -> int:
    """What batches of different ranks are matched by."""
    return key_at(batch.epoch, batch.position)


def key_at(epoch: int, position: int) -> int:
    """The same from its place."""
    return epoch << _EPOCH_BITS | position


def rounds_of(timeline: Timeline) -> RankRounds | None:
    """The measured rounds of a rank; None without any."""
    process, batches = timeline.process, timeline.batches
    if not timeline.measured_batches or process.rank is None:
        return None
    stalls = {(s.epoch, s.position): s.stall_ns for s in process.stalls if s.loader == timeline.main}
    begins = {e.epoch: e.begin_ns for e in process.epochs if e.loader == timeline.main}
    steps = StepColumns(
        epoch=_column([b.epoch for b in batches]),
        position=_column([b.position for b in batches]),
        start_ns=_column([b.ask_ns if b.position else begins.get(b.epoch, b.ask_ns) for b in batches]),
        got_ns=_column([b.got_ns for b in batches]),
        stall_ns=_column([stalls.get((b.epoch, b.position), b.wait_ns) for b in batches]) if stalls else None,
        nbytes=_column([-1 if b.nbytes is None else b.nbytes for b in batches]),
        # A batch tells of the step before it.
        queued_ns=_column([*(b.step_queued_ns or 0 for b in batches[1:]), 0]),
        aside_ns=_passed_in(timeline, [s for s in timeline.spans if s.validation is not None]),
        others_ns=_passed_in(timeline, [s for s in timeline.spans if _waits_beside(s, timeline.main)]),
        single=np.array([b.thinned is None for b in batches]),
    )
    met = np.array(process.meetings, dtype=np.int64).reshape(-1, len(Meeting._fields))
    first = len(batches) - len(timeline.measured_batches)
    return rounds_from(steps, met, process.rank, process.host, first, on_cpu=process.device == "cpu")


class StepColumns(NamedTuple):
    """The batches of a rank's main loader in order, a column per field; -1 for what is unknown."""

    epoch: Array
    position: Array
    start_ns: Array
    """When the batch was asked for; the first of an epoch: when the epoch began."""
    got_ns: Array
    stall_ns: Array | None
    """Part of the wait in which the accelerator was idle; None without one."""
    nbytes: Array
    queued_ns: Array
    """Runnable without a core from this batch to the next."""
    aside_ns: Array
    """Spent in validation between this batch and the next."""
    others_ns: Array
    """The same waiting for batches of other training loaders, which belong to the same step."""
    single: Array
    """Whether the batch stands for itself alone; rounds need that of two in a row."""


def rounds_from(
    steps: StepColumns, meetings: Array, rank: int, host: str, first: int, *, on_cpu: bool
) -> RankRounds | None:
    """The rounds from step `first` on; `meetings` has a row per `Meeting` and a column per field."""
    met = _by_batch(steps.got_ns, meetings)
    count, begin, end, before, within, after, left = met
    seen = on_cpu and bool(count.any())
    if not seen:
        before = within = after = np.zeros_like(count)
    over = np.append(steps.start_ns[1:], -1)
    if seen:
        over = np.where(end > 0, end, np.where(count > 0, left, over))
    first = max(first, 1)
    end_at = len(over) if over[-1] > 0 else len(over) - 1
    now, last = slice(first, end_at), slice(first - 1, end_at - 1)
    begins_ns = over[last] if seen else steps.start_ns[now]
    start, got = steps.start_ns[now], steps.got_ns[now]
    data = got - start
    if steps.stall_ns is not None:
        data = np.minimum(data, steps.stall_ns[now])
    blocked = after[last] + before[now] + within[now]
    held_up = start - begins_ns - after[last]
    backward = np.where(end[now] > 0, end[now] - begin[now] - within[now], 0) if seen else np.zeros_like(data)
    aside = np.minimum(steps.aside_ns[last], held_up)
    forward = over[now] - begins_ns - held_up - data - backward - blocked
    beside = np.clip(forward, 0, steps.others_ns[now])
    data, forward = data + beside, forward - beside
    single = steps.single[now] & steps.single[last]
    if not single.any():
        return None
    parts = (
        np.maximum(np.stack([held_up, data, forward, backward, blocked, steps.queued_ns[now], aside]), 0)
        / 1e9
    )
    size = np.where(steps.nbytes[now] < 0, np.nan, steps.nbytes[now])
    keys = steps.epoch[now] << _EPOCH_BITS | steps.position[now]
    ones = np.ones(len(keys))
    return RankRounds(
        rank,
        host,
        keys[single],
        ones[single],
        parts[:, single],
        size[single],
        parts[BLOCKED][single],
        begins_ns[single],
        over[now][single],
        seen,
    )


def folded_rounds(process: Process) -> RankRounds | None:
    """The rounds of a rank whose steps were folded into windows; None without any."""
    folded = process.folded
    if folded is None or process.rank is None or not len(folded.epochs):
        return None
    epochs, positions, steps, *parts, least, nbytes = (np.asarray(c, dtype=np.int64) for c in folded)
    times = np.array([*parts, np.zeros(len(epochs))], dtype=np.float64) / 1e6  # none is kept of what is aside
    nothing = np.zeros(len(epochs), dtype=np.int64)
    return RankRounds(
        process.rank,
        process.host,
        epochs << _EPOCH_BITS | positions,
        steps.astype(np.float64),
        times,
        np.where(nbytes > 0, nbytes, np.nan),
        least / 1e6 * steps,
        nothing,
        nothing,
        seen=bool(times[BLOCKED].any()),
    )


def folded(rounds: RankRounds, most: int) -> FoldedSteps:
    """The rounds in windows of up to `most` steps, which begin at its multiples on every rank.

    The first round of an epoch, in which loaders start, keeps a window to itself.
    """
    epochs, positions = rounds.keys >> _EPOCH_BITS, rounds.keys & ((1 << _EPOCH_BITS) - 1)
    windows = np.where(positions > 0, np.maximum(positions // most * most, 1), 0)
    places = np.flatnonzero(np.diff(epochs << _EPOCH_BITS | windows, prepend=-1))
    steps = np.diff(places, append=len(windows))
    parts_us = np.rint(np.add.reduceat(rounds.parts[:ASIDE], places, axis=1) * 1e6)
    least_us = np.rint(np.minimum.reduceat(rounds.parts[BLOCKED], places) * 1e6)
    nbytes = np.nan_to_num(np.add.reduceat(rounds.nbytes, places) / steps)
    columns = (epochs[places], windows[places], steps, *parts_us, least_us, nbytes)
    return FoldedSteps(*(np.clip(c, 0, _MOST).astype(np.uint32).tolist() for c in columns))


def _places(keys: Array, wanted: Array) -> Array:
    """Where the wanted keys are, all of which exist; the keys of a damaged run are not in order."""
    order = np.argsort(keys, kind="stable")
    found: Array = order[np.searchsorted(keys, wanted, sorter=order)]
    return found


def joined(ranks: Sequence[RankRounds]) -> JointRounds | None:
    """The rounds that all ranks took; None without any."""
    keys = ranks[0].keys
    for one in ranks[1:]:
        keys = np.intersect1d(keys, one.keys)
    if not len(keys):
        return None
    places = [_places(one.keys, keys) for one in ranks]
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
    return _accumulated(JointRounds(tuple(ranks), keys, keys, steps, parts, nbytes, floor, seen))


def _accumulated(joint: JointRounds) -> JointRounds:
    """The same with rounds that end without an exchange added to the next one that has one."""
    blocked = joint.parts[BLOCKED].max(axis=0)
    meets = blocked > np.minimum(_HARDLY_BLOCKED * joint.rounds_s, _HARDLY_BLOCKED_S)
    meets[-1] = True
    ends = np.flatnonzero(meets)
    if not joint.seen or len(ends) == len(meets) or len(ends) < _FEWEST_MEETINGS:
        return joint
    begins = np.concatenate([[0], ends[:-1] + 1])
    return JointRounds(
        joint.ranks,
        joint.batches,
        joint.keys[begins],
        np.add.reduceat(joint.steps, begins),
        np.add.reduceat(joint.parts, begins, axis=2),
        np.add.reduceat(joint.nbytes, begins, axis=1),
        np.add.reduceat(joint.floor, begins, axis=1),
        joint.seen,
    )


def _waits_beside(span: TimeSpan, main: int) -> bool:
    """Whether the step waits here for a batch of another loader."""
    other = span.batch is not None and span.batch.loader != main
    return other and span.validation is None and span.doing in (Doing.WAIT, Doing.START)


def _passed_in(timeline: Timeline, spans: Sequence[TimeSpan]) -> Array:
    """For each batch of the main loader, the time in these spans from its delivery to the next one's."""
    got_ns = _column([batch.got_ns for batch in timeline.batches])
    if not spans:
        return np.zeros_like(got_ns)
    edges = _column([at for span in spans for at in (span.begin_ns, span.end_ns)])
    passed = np.cumsum(np.where(np.arange(len(edges)) % 2, np.diff(edges, prepend=edges[0]), 0))
    spent = np.interp(got_ns - edges[0], edges - edges[0], passed)
    found: Array = np.diff(spent, append=spent[-1]).astype(np.int64)
    return found


def _by_batch(got_ns: Array, meetings: Array) -> Array:
    """For each batch, what happened from its delivery to the next one: the rows of a `Meeting` but the last.

    A step has several if other loaders are asked for batches in it: validation at the end of an epoch.
    """
    found = np.zeros((len(Meeting._fields) - 1, len(got_ns)), dtype=np.int64)
    if not len(meetings) or not len(got_ns):
        return found
    at = np.searchsorted(got_ns, meetings[:, -1], side="right") - 1
    meetings, at = meetings[at >= 0], at[at >= 0]
    if len(at) and (np.diff(at) > 0).all():
        found[:, at] = meetings[:, :-1].T
        return found
    for place, one in zip(at.tolist(), meetings.tolist(), strict=True):
        found[:, place] = _both(found[:, place].tolist(), one)
    return found


def _both(a: list[int], b: list[int]) -> list[int]:
    """Two parts of one step: what blocked after the first backward pass was not before another."""
    count, begin, end, before, within, after, _ = (x + y for x, y in zip(a, b, strict=False))
    if not a[1]:
        return [count, begin, end, before, within, after, max(a[6], b[6])]
    blocked = b[3] + b[4] + b[5]
    if not b[1]:
        return [count, a[1], a[2], a[3], a[4], a[5] + blocked, max(a[6], b[6])]
    return [count, a[1], b[2], a[3], a[4] + a[5] + b[3] + b[4], b[5], max(a[6], b[6])]


def _column(values: Sequence[int]) -> Array:
    return np.array(values, dtype=np.int64)
