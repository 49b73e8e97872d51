"""Timelines of several ranks → the job's own: in each round, the timeline of the rank that arrived last.

What the last rank waits for is lost to all of them; what the others wait for meanwhile is not. So wait share,
budget, evidence and headroom of a job come from these timelines, as if one process had trained.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Sequence
from itertools import pairwise

import numpy as np

from unstarve.analyze.rank_rounds import JointRounds, key_of
from unstarve.analyze.ranks import last_arrivals
from unstarve.analyze.timeline import Timeline, TimeSpan

Stretch = tuple[int, int]


def critical_timelines(timelines: Sequence[Timeline], joint: JointRounds) -> list[Timeline]:
    """The timelines cut down to the rounds in which their rank arrived last, without those that never did."""
    by_rank = {timeline.process.rank: timeline for timeline in timelines}
    places = range(len(joint.ranks))
    last = last_arrivals(joint)
    rounds = [np.flatnonzero(last == at).tolist() for at in places]
    batches = critical_batches(joint)
    # What comes before the first round and after the last one: from the rank that is last most often.
    first = max(places, key=lambda at: len(rounds[at]))
    found = []
    for at in places:
        timeline = by_rank[joint.ranks[at].rank]
        if rounds[at]:
            found.append(_cut(timeline, joint, at, rounds[at], batches[at], to_the_ends=at == first))
    return found


def critical_batches(joint: JointRounds) -> list[frozenset[int]]:
    """For each rank, the keys of the batches in the rounds in which it arrived last."""
    last = last_arrivals(joint)[np.searchsorted(joint.keys, joint.batches, side="right") - 1]
    return [frozenset(joint.batches[last == at].tolist()) for at in range(len(joint.ranks))]


def _cut(
    timeline: Timeline,
    joint: JointRounds,
    at: int,
    rounds: Sequence[int],
    keys: Container[int],
    *,
    to_the_ends: bool,
) -> Timeline:
    rank = joint.ranks[at]
    begins = dict(zip(rank.keys.tolist(), rank.begin_ns.tolist(), strict=True))
    marks = [begins[key] for key in joint.keys.tolist()]
    marks.append(int(rank.end_ns[-1]))
    stretches: list[Stretch] = []
    if to_the_ends and timeline.measured:
        stretches.append((timeline.measured[0].begin_ns, marks[0]))
    stretches += [(marks[number], marks[number + 1]) for number in rounds]
    if to_the_ends and timeline.measured:
        stretches.append((marks[-1], timeline.measured[-1].end_ns))
    following = {a.got_ns: key_of(b) for a, b in pairwise(timeline.batches)}
    return dataclasses.replace(
        timeline,
        measured=_within(timeline.measured, [one for one in stretches if one[1] > one[0]]),
        measured_batches=tuple(b for b in timeline.measured_batches if key_of(b) in keys),
        steps=tuple(s for s in timeline.steps if following.get(s.begin_ns) in keys),
    )


def _within(spans: Sequence[TimeSpan], stretches: Sequence[Stretch]) -> tuple[TimeSpan, ...]:
    """The parts of the spans inside the stretches; both are in order."""
    found: list[TimeSpan] = []
    at = 0
    for begin_ns, end_ns in stretches:
        while at < len(spans) and spans[at].end_ns <= begin_ns:
            at += 1
        look = at
        while look < len(spans) and spans[look].begin_ns < end_ns:
            found.append(spans[look].within(begin_ns, end_ns))
            look += 1
    return tuple(found)
