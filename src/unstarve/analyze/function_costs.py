"""The functions and transforms that take the time, in agreement with the counters.

Counters say how long fetching and collating took and how much of it was CPU time; a stack sampler says which
functions were seen there. So the sampler divides the time, and the counters say how much there is to divide:
the shares of all functions found computing sum to the CPU share of fetching.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from unstarve.model import Cause, Demand, FunctionCost, Process, TransformCost

_MOST = 20
"""Functions, and transforms."""
_SMALLEST_SHARE = 0.001
_FAR_APART = 0.25
"""Difference of two shares. The sampler tells computing from waiting only where either lasts for some time;
if the counters contradict it by more than this, they decide."""

Place = tuple[str, str, int]
"""Function, file, first line."""
Seconds = Mapping[Place, float]


def function_costs(processes: Sequence[Process], demand: Demand | None) -> tuple[FunctionCost, ...]:
    """Functions that make batches, and those of the step that are not torch's own, costliest first."""
    costs = [*_fetching(processes, demand), *_collating(processes), *_host(processes)]
    shown = [cost for cost in costs if cost.share >= _SMALLEST_SHARE]
    return tuple(sorted(shown, key=lambda cost: -cost.seconds)[:_MOST])


def transform_costs(processes: Sequence[Process]) -> tuple[TransformCost, ...]:
    """Transforms that were timed one by one, costliest first. The functions they call are sampled, too."""
    fetching_s = _fetching_s(processes)
    seconds: defaultdict[str, float] = defaultdict(float)
    calls: Counter[str] = Counter()
    for process in processes:
        for transform in process.transforms:
            seconds[transform.name] += transform.seconds
            calls[transform.name] += transform.calls
    if not fetching_s:
        return ()
    costs = [TransformCost(name, calls[name], s, min(s / fetching_s, 1.0)) for name, s in seconds.items()]
    return tuple(sorted(costs, key=lambda cost: -cost.seconds)[:_MOST])


def _fetching(processes: Sequence[Process], demand: Demand | None) -> Iterator[FunctionCost]:
    computing, waiting = _seen(processes, "fetch", on_cpu=True), _seen(processes, "fetch", on_cpu=False)
    seen_s = _total(computing) + _total(waiting)
    if not seen_s:
        return
    cpu, queued, blocked = _total(computing) / seen_s, 0.0, Cause.REMOTE
    if demand is not None and demand.fetch_s > 0:
        cpu, queued = demand.cpu_s / demand.fetch_s, demand.queued_s / demand.fetch_s
        blocked = Cause.DISK if demand.disk_s > demand.remote_s else Cause.REMOTE
    computing, waiting = _told_apart(computing, waiting, cpu + queued)
    fetching_s = _fetching_s(processes) or seen_s
    yield from _divided(computing, Cause.CPU, cpu, fetching_s)
    yield from _divided(waiting, blocked, max(1 - cpu - queued, 0.0), fetching_s)


def _told_apart(computing: Seconds, waiting: Seconds, wanting_cpu: float) -> tuple[Seconds, Seconds]:
    """The functions that compute and those that wait; `wanting_cpu` is the counters' share of the first."""
    seen_s = _total(computing) + _total(waiting)
    missing_s = wanting_cpu * seen_s - _total(computing)
    if abs(missing_s) <= _FAR_APART * seen_s:
        return computing, waiting
    if missing_s > 0:
        waiting, computing = _moved(missing_s / _total(waiting), waiting, computing)
    else:
        computing, waiting = _moved(-missing_s / _total(computing), computing, waiting)
    return computing, waiting


def _moved(share: float, source: Seconds, target: Seconds) -> tuple[Seconds, Seconds]:
    """Both, after this share of each function's time was moved from one to the other."""
    both = {place: target.get(place, 0.0) + share * source.get(place, 0.0) for place in {**target, **source}}
    return {place: seconds * (1 - share) for place, seconds in source.items()}, both


def _collating(processes: Sequence[Process]) -> Iterator[FunctionCost]:
    seen = _seen(processes, "collate")
    collating_s = sum(w.done_ns - w.collate_ns for p in processes for w in p.works) / 1e9
    yield from _divided(seen, Cause.COLLATE, 1.0, collating_s or _total(seen))


def _host(processes: Sequence[Process]) -> Iterator[FunctionCost]:
    step_s = _total(_seen(processes, "step"))
    host = _seen(processes, "step", torch=False)
    yield from _divided(host, Cause.HOST, _total(host) / step_s if step_s else 0.0, step_s)


def _seen(
    processes: Sequence[Process], place: str, *, on_cpu: bool | None = None, torch: bool | None = None
) -> Seconds:
    """Seconds in which the sampler saw each function there, over all processes."""
    seen: defaultdict[Place, float] = defaultdict(float)
    for process in processes:
        for found in process.sampled:
            if found.place == place and on_cpu in (None, found.on_cpu) and torch in (None, found.torch):
                seen[found.function, found.file, found.line] += found.seconds
    return seen


def _divided(seen: Seconds, where: Cause, share: float, stage_s: float) -> Iterator[FunctionCost]:
    """A share of a stage that takes `stage_s`, divided among the functions seen there."""
    seen_s = _total(seen)
    for place, seconds in seen.items():
        part = share * seconds / seen_s if seen_s else 0.0
        yield FunctionCost(*place, where=where, seconds=part * stage_s, share=part)


def _total(seen: Seconds) -> float:
    return sum(seen.values())


def _fetching_s(processes: Sequence[Process]) -> float:
    return sum(work.collate_ns - work.begin_ns for p in processes for work in p.works) / 1e9
