"""Timelines of several ranks → who makes the others wait.

Ranks that train together leave the exchange of gradients together, so the rank whose batch comes last is the
one that the others wait for. A victim's own step looks long, because it waits in the exchange; so the length
of a step says nothing about its rank, and the shortest step of all ranks stands for the work itself. Steps
are matched by epoch and position: the clocks of different machines are never compared.

A rank whose computing is slow is not found this way: that needs its time of arrival at the exchange.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low

from unstarve.analyze.timeline import Timeline
from unstarve.model.rank_summary import RankPattern, RankSummary, RankTimes
from unstarve.words import counted, duration, listed, percent

_FEWEST_STEPS = 20
_CLEARLY = 0.1
"""A rank is late if it waits longer than the median rank by this share of the mean step."""
_EVEN = 0.05
"""Smallest share of the job's time lost to late ranks that is worth telling."""
_MOSTLY = 0.7
"""Of the lost time: so much makes one rank, one machine or a few steps the reason."""
_FEW = 0.1
"""Of the steps."""
_APART = 0.1
"""Ranks whose steps take times that differ by more do not wait for each other."""


@dataclass(frozen=True, slots=True)
class _JointStep:
    """One step of all ranks; the lists are in the order of the timelines."""

    waits_s: list[float]
    works_s: list[float]

    @property
    def work_s(self) -> float:
        return min(self.works_s)

    @property
    def excess_s(self) -> float:
        """How much sooner the step would have ended if its last rank had waited as long as the median one."""
        return max(self.waits_s) - median_low(self.waits_s)


def summarize_ranks(timelines: Sequence[Timeline]) -> RankSummary | None:
    """The summary of a training with several ranks; None without, or with too few steps in common."""
    ranks = [t.process.rank for t in timelines]
    if len(set(ranks)) < 2 or len(set(ranks)) < len(ranks) or None in ranks:
        return None
    steps = _joint_steps(timelines)
    if len(steps) < _FEWEST_STEPS or not _together(steps):
        return None
    mean_s = sum(step.work_s + max(step.waits_s) for step in steps) / len(steps)
    lost, late = [0.0] * len(timelines), Counter[int]()
    for step in steps:
        if step.excess_s > _CLEARLY * mean_s:
            last = step.waits_s.index(max(step.waits_s))
            lost[last] += step.excess_s
            late[last] += 1
    if not mean_s:
        return None
    excess_s = sum(step.excess_s for step in steps) / len(steps)
    pattern, held_by = _pattern(timelines, steps, lost, excess_s / mean_s)
    return RankSummary(
        pattern,
        held_by,
        len(steps),
        mean_s * 1e3,
        (mean_s - excess_s) * 1e3,
        sum(step.work_s for step in steps) / len(steps) * 1e3,
        tuple(_times(at, timeline, steps, late[at]) for at, timeline in enumerate(timelines)),
    )


def rank_sentence(summary: RankSummary) -> str | None:
    """Who makes the others wait and what a step would take otherwise; None when nobody does."""
    gain = f"a step takes {duration(summary.step_ms / 1e3)}; without that it would take "
    gain += duration(summary.even_ms / 1e3)
    names = ("Rank " if len(summary.late) == 1 else "Ranks ") + listed([str(rank) for rank in summary.late])
    waiting = [one for one in summary.by_rank if one.rank in summary.late]
    share = sum(one.late_share for one in waiting)
    if summary.pattern is RankPattern.FIXED:
        return f"{names} got its batch last in {percent(share)} of the steps, and the others waited: {gain}."
    if summary.pattern is RankPattern.NODE:
        host = waiting[0].host
        return f"The ranks of {host} got their batches last in {percent(share)} of the steps: {gain}."
    if summary.pattern is RankPattern.PAUSE:
        return f"{names} paused now and then, and the others waited: {gain} on average."
    if summary.pattern is RankPattern.ROTATING:
        ranks = counted(len(summary.by_rank), "rank")
        return f"The {ranks} take turns in being late, so loading is uneven everywhere: {gain}."
    return None


def _joint_steps(timelines: Sequence[Timeline]) -> list[_JointStep]:
    """Steps that all ranks took, without the first of each epoch: workers start there."""
    found: defaultdict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for timeline in timelines:
        own = timeline.measured_batches
        for batch, after in pairwise(own):
            if batch.position and batch.epoch == after.epoch and batch.thinned is None:
                work_s = (after.ask_ns - batch.got_ns) / 1e9
                found[batch.epoch, batch.position].append((batch.wait_ns / 1e9, work_s))
    whole = [times for times in found.values() if len(times) == len(timelines)]
    return [_JointStep([wait for wait, _ in times], [work for _, work in times]) for times in whole]


def _together(steps: Sequence[_JointStep]) -> bool:
    """Whether all ranks took the same time for the same steps, as ranks that wait for each other do."""
    ranks = range(len(steps[0].waits_s))
    totals = [sum(step.waits_s[at] + step.works_s[at] for step in steps) for at in ranks]
    return min(totals) >= (1 - _APART) * max(totals)


def _pattern(
    timelines: Sequence[Timeline], steps: Sequence[_JointStep], lost: Sequence[float], share: float
) -> tuple[RankPattern, tuple[int, ...]]:
    total = sum(lost)
    if share < _EVEN or not total:
        return RankPattern.EVEN, ()
    ranks = [timeline.process.rank or 0 for timeline in timelines]
    first = max(range(len(ranks)), key=lambda at: lost[at])
    longest = sorted((step.excess_s for step in steps), reverse=True)
    few = sum(longest[: max(int(_FEW * len(longest)), 1)]) >= _MOSTLY * sum(longest)
    if lost[first] >= _MOSTLY * total:
        return (RankPattern.PAUSE if few else RankPattern.FIXED), (ranks[first],)
    by_host: defaultdict[str, list[int]] = defaultdict(list)
    for at, timeline in enumerate(timelines):
        by_host[timeline.process.host].append(at)
    for members in by_host.values() if len(by_host) > 1 else ():
        if sum(lost[at] for at in members) >= _MOSTLY * total:
            return RankPattern.NODE, tuple(ranks[at] for at in members)
    return RankPattern.ROTATING, ()


def _times(at: int, timeline: Timeline, steps: Sequence[_JointStep], late: int) -> RankTimes:
    process = timeline.process
    share = timeline.wait_s / timeline.measured_s if timeline.measured_s else 0.0
    wait_ms = sum(step.waits_s[at] for step in steps) / len(steps) * 1e3
    return RankTimes(process.rank or 0, process.host, share, late / len(steps), wait_ms)
