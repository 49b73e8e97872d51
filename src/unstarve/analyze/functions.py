"""Stack samples of all processes → the functions that time goes to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from unstarve.model import Cause, FunctionCost, Process, Sampled

_MOST_FUNCTIONS = 20


def function_costs(processes: Sequence[Process], blocked: Cause) -> tuple[FunctionCost, ...]:
    """Costliest first: of making batches, and of the step what is not torch's own work.

    `blocked` is what fetches are blocked on: the disk, or anything else.
    """
    seconds: defaultdict[tuple[str, str, int, Cause], float] = defaultdict(float)
    totals: defaultdict[str, float] = defaultdict(float)
    places: dict[tuple[str, str, int, Cause], str] = {}
    for process in processes:
        for found in process.sampled:
            totals[found.place] += found.seconds
            where = _cause(found, blocked)
            if where is not None:
                key = (found.function, found.file, found.line, where)
                seconds[key] += found.seconds
                places[key] = found.place
    costs = _transforms(processes)
    costs += [
        FunctionCost(*key, seconds=value, share=value / totals[places[key]]) for key, value in seconds.items()
    ]
    return tuple(sorted(costs, key=lambda cost: -cost.seconds)[:_MOST_FUNCTIONS])


def _transforms(processes: Sequence[Process]) -> list[FunctionCost]:
    """Single transforms, timed one by one; their share is of all the time spent fetching."""
    fetching_s = sum(w.collate_ns - w.begin_ns for p in processes for w in p.works) / 1e9
    seconds: defaultdict[str, float] = defaultdict(float)
    for process in processes:
        for transform in process.transforms:
            seconds[transform.name] += transform.seconds
    return [
        FunctionCost(name, "transform", 0, Cause.CPU, value, value / fetching_s)
        for name, value in seconds.items()
        if fetching_s
    ]


def _cause(found: Sampled, blocked: Cause) -> Cause | None:
    if found.place == "collate":
        return Cause.COLLATE
    if found.place == "fetch":
        return Cause.CPU if found.on_cpu else blocked
    return None if found.torch else Cause.HOST
