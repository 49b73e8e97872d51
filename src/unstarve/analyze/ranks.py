"""Rounds of several ranks → who makes the others wait, why, and what a step would take otherwise.

Ranks that train together leave an exchange together, so the others wait for the rank that arrives last. A
victim's step looks as long as that of the rank it waits for; so the length of a step, or of its backward
pass, says nothing about its rank. What counts is what a rank did by itself: see `rank_rounds`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unstarve.analyze.rank_rounds import (
    AFTER,
    ASIDE,
    BACKWARD,
    BLOCKED,
    DATA,
    FORWARD,
    QUEUED,
    Array,
    JointRounds,
    RankRounds,
    joined,
)
from unstarve.model import Process
from unstarve.model.rank_summary import RankHeat, RankPattern, RankReason, RankSummary, RankTimes
from unstarve.words import counted, duration, listed, percent, workers

_FEWEST_STEPS = 20
_CLEARLY = 0.1
"""A rank is late if it takes longer than the median rank by this share of the mean step."""
_EVEN = 0.05
"""Smallest share of the job's time lost to late ranks that is worth telling."""
_MOSTLY = 0.7
"""Of the lost time: so much makes one rank, one machine or a few steps the reason."""
_NEARLY = 0.7
"""Of the lateness of the last rank: a rank that is so late is to blame as well."""
_FEW = 0.1
"""Of the steps."""
_APART = 0.1
"""Ranks whose steps take times that differ by more do not wait for each other."""
_LARGER = 1.05
"""Times the bytes of the median rank: the batch is larger."""
_NEARLY_ALL = 0.85
"""Of the lost time: if half of the ranks or fewer hold as much, they are named."""
_FEWEST_PAUSES = 3
_FEWEST_STARTS = 6
"""A rank that is last to start in every one of so many epochs is not so by chance."""
_MOST_STRETCHES = 48
_MOST_NAMED = 4
_REASONS = {
    AFTER: RankReason.AFTER,
    DATA: RankReason.DATA,
    FORWARD: RankReason.FORWARD,
    BACKWARD: RankReason.BACKWARD,
}


def joint_rounds(ranks: Sequence[RankRounds | None]) -> JointRounds | None:
    """The rounds of a training whose ranks wait for each other; None without, or with too few."""
    known = [one for one in ranks if one is not None]
    if len(known) < 2 or len(known) < len(ranks) or len({one.rank for one in known}) < len(known):
        return None
    joint = joined(sorted(known, key=lambda one: one.rank))
    if joint is None or joint.steps.sum() < _FEWEST_STEPS or not _together(joint):
        return None
    return joint


def last_arrivals(joint: JointRounds) -> Array:
    """For each round, the place of the rank that arrived last."""
    found: Array = joint.own.argmax(axis=0)
    return found


def summarize_ranks(joint: JointRounds) -> RankSummary:
    """How the ranks got along."""
    rounds_s, steps = joint.rounds_s, float(joint.steps.sum())
    step_s = float(rounds_s.sum()) / steps
    steady = _steady(joint)
    took = steady[AFTER:BLOCKED].sum(axis=0)
    excess_s = np.maximum(took.max(axis=0) - _middle(took), _hidden_s(joint))
    last = took.argmax(axis=0)
    clearly = excess_s > _CLEARLY * step_s * joint.steps
    # Ranks of a slow machine come last together.
    later_s = np.maximum(took - _middle(took), 0)
    together = (later_s >= _NEARLY * later_s.max(axis=0)) * (later_s > 0) * clearly
    blame = together / np.maximum(together.sum(axis=0), 1)
    lost_s = (blame * later_s.max(axis=0)).sum(axis=1)
    shared_s = max(float(excess_s[clearly].sum() - lost_s.sum()), 0.0)
    pattern, late = _pattern(joint, lost_s, shared_s, excess_s, step_s * steps)
    if pattern is RankPattern.FIXED and len(late) > 1:  # one sentence has one reason: that of the worst
        reasons = {at: _reason(joint, steady, np.full_like(last, at), blame[at] > 0) for at in late}
        late = [at for at in late if reasons[at] is reasons[int(lost_s.argmax())]]
    chosen = clearly & (np.isin(last, late) if late else True)
    lateness = (blame * joint.steps).sum(axis=1) / steps
    return RankSummary(
        pattern,
        tuple(joint.ranks[at].rank for at in late),
        None if pattern is RankPattern.EVEN else _reason(joint, steady, last, chosen),
        _every(joint, excess_s) if pattern is RankPattern.PAUSE else None,
        joint.seen,
        int(steps),
        step_s * 1e3,
        float((rounds_s - excess_s).sum() / steps * 1e3),
        float(joint.free_s.sum() / steps * 1e3),
        tuple(_times(joint, at, float(lateness[at]), float(lost_s[at])) for at in range(len(joint.ranks))),
        _heat(joint, blame * excess_s),
    )


def rank_sentence(summary: RankSummary) -> str | None:
    """Who makes the others wait, why, and what a step would take otherwise; None when nobody does."""
    if summary.pattern is RankPattern.EVEN:
        return None
    late = [one for one in summary.by_rank if one.rank in summary.late]
    # Without the lateness of these ranks; that of the others stays.
    without_ms = summary.step_ms - sum(one.lost_ms for one in late) if late else summary.even_ms
    gain = (
        f"a step takes {duration(summary.step_ms / 1e3)}; without that it would take "
        f"{duration(without_ms / 1e3)}"
    )
    named = ("Rank " if len(late) == 1 else "Ranks ") + listed([str(one.rank) for one in late[:_MOST_NAMED]])
    share = percent(sum(one.late_share for one in late))
    why = _WHY[summary.reason or RankReason.UNKNOWN]
    if summary.pattern is RankPattern.FIXED:
        return f"{named} came last in {share} of the steps, {why}, and the others waited: {gain}."
    if summary.pattern is RankPattern.NODE:
        return f"The ranks of {late[0].host} came last in {share} of the steps, {why}: {gain}."
    if summary.pattern is RankPattern.PAUSE:
        often = "now and then" if summary.every is None else f"every {summary.every} steps"
        who = named if late else "One rank or another"
        return f"{who} paused {often}, {why}, and the others waited: {gain} on average."
    ranks = counted(len(summary.by_rank), "rank")
    return f"The {ranks} take turns coming last, {why}: {gain}."


def crowded_node(trainers: Sequence[Process]) -> str | None:
    """The machine whose ranks have more workers together than it has cores; None without one."""
    by_host: dict[str, list[Process]] = {}
    for process in trainers:
        if process.rank is not None:
            by_host.setdefault(process.host, []).append(process)
    for host, ranks in by_host.items():
        cores = min((ranks[0].system[key] for key in _CORES if ranks[0].system.get(key)), default=None)
        started = sum(
            max((int(loader.config.get("num_workers") or 0) for loader in one.loaders), default=0)
            for one in ranks
        )
        if len(ranks) > 1 and cores is not None and started > cores:
            return f"{host} runs {workers(started)} of {len(ranks)} ranks on {counted(round(cores), 'core')}"
    return None


_CORES = ("cores", "quota_cores")
_WHY = {
    RankReason.DATA: "waiting for data",
    RankReason.FORWARD: "before the backward pass",
    RankReason.BACKWARD: "in the backward pass",
    RankReason.AFTER: "between the exchange of gradients and the next batch (optimizer, logging, checkpoint)",
    RankReason.VALIDATION: "in validation",
    RankReason.SIZE: "with the largest batch",
    RankReason.CORES: "runnable but without a free core",
    RankReason.UNKNOWN: "not because of its data",
}


def _together(joint: JointRounds) -> bool:
    """Whether all ranks took the same time for the same steps, as ranks that wait for each other do."""
    totals = joint.parts[:QUEUED].sum(axis=(0, 2))
    return bool(totals.min() >= (1 - _APART) * totals.max()) and bool(totals.max() > 0)


def _steady(joint: JointRounds) -> Array:
    """The parts without the starts of loaders, which take longer now on one rank and now on another."""
    steady = joint.parts.copy()
    starts = steady[DATA][:, joint.begins_epoch]
    last = starts.argmax(axis=0)
    if len(last) < _FEWEST_STARTS or (last != last[0]).any():
        steady[DATA][:, joint.begins_epoch] = 0
    return steady


def _middle(values: Array) -> Array:
    """The lower median over ranks."""
    at = (len(values) - 1) // 2
    found: Array = np.partition(values, at, axis=0)[at]
    return found


def _hidden_s(joint: JointRounds) -> Array:
    """Time lost inside of windows: every rank is blocked at times, and none over the whole window."""
    if joint.steps.max() == 1:
        return np.zeros(len(joint.steps))
    found: Array = _middle(joint.parts[BLOCKED] - joint.floor)
    return found


def _pattern(
    joint: JointRounds, lost_s: Array, shared_s: float, excess_s: Array, total_s: float
) -> tuple[RankPattern, list[int]]:
    """The pattern, and the places of the ranks that are named."""
    lost_in_all_s = float(lost_s.sum()) + shared_s
    if float(excess_s.sum()) < _EVEN * total_s or not lost_in_all_s:
        return RankPattern.EVEN, []
    longest = np.sort(excess_s)[::-1]
    few = longest[: max(int(_FEW * len(longest)), 1)].sum() >= _MOSTLY * longest.sum()
    first = int(lost_s.argmax())
    if lost_s[first] >= _MOSTLY * lost_in_all_s:
        return (RankPattern.PAUSE if few else RankPattern.FIXED), [first]
    hosts = [one.host for one in joint.ranks]
    for host in sorted(set(hosts)) if len(set(hosts)) > 1 else ():
        members = [at for at, one in enumerate(hosts) if one == host]
        if lost_s[members].sum() >= _MOSTLY * lost_in_all_s:
            return RankPattern.NODE, members
    worst = np.argsort(lost_s)[::-1]
    needed = int(np.searchsorted(np.cumsum(lost_s[worst]), _NEARLY_ALL * lost_in_all_s)) + 1
    if not few and needed <= len(worst) / 2:
        return RankPattern.FIXED, sorted(worst[:needed].tolist())
    return (RankPattern.PAUSE if few else RankPattern.ROTATING), []


def _reason(joint: JointRounds, steady: Array, last: Array, chosen: Array) -> RankReason:
    """What the ranks that come last do longer than the median rank, in the rounds that are lost to them."""
    rounds = np.flatnonzero(chosen)
    if not len(rounds):  # lost inside of windows: nobody knows to whom
        return RankReason.UNKNOWN
    longer_s = {
        part: float((steady[part][last[rounds], rounds] - _middle(steady[part][:, rounds])).sum())
        for part in (AFTER, DATA, FORWARD, BACKWARD, QUEUED, ASIDE)
    }
    lost_s = sum(longer_s[part] for part in _REASONS)
    if longer_s[DATA] < lost_s / 2:
        nbytes = joint.nbytes[:, rounds]
        larger = joint.nbytes[last[rounds], rounds] > _LARGER * _middle(nbytes)
        weights = (steady[AFTER:BLOCKED].sum(axis=0)[last[rounds], rounds]) * larger
        if weights.sum() >= _MOSTLY * steady[AFTER:BLOCKED].sum(axis=0)[last[rounds], rounds].sum():
            return RankReason.SIZE
        if longer_s[QUEUED] >= lost_s / 2:
            return RankReason.CORES
        if not joint.seen:
            return RankReason.UNKNOWN
        if longer_s[ASIDE] >= lost_s / 2:
            return RankReason.VALIDATION
    return _REASONS[max(_REASONS, key=lambda part: longer_s[part])]


def _every(joint: JointRounds, excess_s: Array) -> int | None:
    """The number of steps from one pause to the next, if it is always the same."""
    paused = np.flatnonzero(excess_s > excess_s.max() / 2)
    if len(paused) < _FEWEST_PAUSES:
        return None
    at_step = np.cumsum(joint.steps)
    apart = np.diff(at_step[paused])
    usual = float(np.median(apart))
    near = np.abs(apart - usual) <= max(1.0, usual / 10)
    return round(usual) if near.mean() >= _MOSTLY else None


def _times(joint: JointRounds, at: int, late_share: float, lost_s: float) -> RankTimes:
    rank, steps = joint.ranks[at], joint.steps.sum()
    data_s, blocked_s = (float(joint.parts[part][at].sum()) for part in (DATA, BLOCKED))
    own_s = float(joint.own[at].sum())
    return RankTimes(
        rank.rank,
        rank.host,
        data_s / (own_s + blocked_s) if own_s + blocked_s else 0.0,
        late_share,
        data_s / steps * 1e3,
        (own_s - data_s) / steps * 1e3,
        blocked_s / steps * 1e3 if joint.seen else None,
        lost_s / steps * 1e3,
    )


def _heat(joint: JointRounds, lost_s: Array) -> RankHeat | None:
    """The lost time by rank and stretch of the steps; None when nothing is lost."""
    count = lost_s.shape[1]
    stretches = min(count, _MOST_STRETCHES)
    stretch = np.arange(count) * stretches // count
    by_stretch = np.stack([np.bincount(stretch, row, minlength=stretches) for row in lost_s])
    lost: Array = by_stretch / np.bincount(stretch, joint.steps, minlength=stretches)
    longest = float(lost.max())
    if not longest:
        return None
    rows = np.rint(lost / longest * 100).astype(int)
    return RankHeat(
        round(float(joint.steps.sum()) / stretches), longest * 1e3, tuple(tuple(row) for row in rows.tolist())
    )
