"""A run without batches: why there are none, and what the command did instead."""

from __future__ import annotations

from collections import defaultdict
from pathlib import PurePath

from unstarve.analyze.command_end import ended_early, failed
from unstarve.model import Cause, FunctionCost, LoopProfile, Run, UnseenBatches
from unstarve.words import percent

_MOST_TOLD = 4
_LEAST_TOLD = 0.03
"""Smaller shares of the loop's time are not told."""


def why_no_batches(run: Run) -> str:
    """The headline of a run in which training received no batch."""
    lost = [*run.lost, *(message for process in run.processes for message in process.lost)]
    if lost:
        return f"Nothing could be recorded: {lost[0]}."
    if failed(run):
        when = "before its first batch" if loop_of(run) is None else "without iterating a DataLoader"
        return f"{ended_early(run, when)}."
    if unseen_batches(run) is not None:
        return "No DataLoader was iterated, so unstarve could not see how long training waits for data."
    return (
        "No DataLoader was iterated. If your loader is something else, "
        "wrap it: for batch in unstarve.watch(batches)."
    )


def loop_notes(run: Run) -> tuple[str, ...]:
    """What is known about a run without batches, in sentences."""
    notes = []
    told = [p for p in loop_functions(run) if p.share >= _LEAST_TOLD][:_MOST_TOLD]
    if told:
        shown = ", ".join(f"{p.name} ({PurePath(p.file).name}:{p.line}) {percent(p.share)}" for p in told)
        notes.append(f"where the training loop spent its time: {shown}")
    if run.limit is not None:
        notes.append(f"{run.limit} had no effect: no batch was delivered")
    return tuple(notes)


def loop_of(run: Run) -> LoopProfile | None:
    """The loop of the process that trained longest without a loader; None when no such loop was seen."""
    loops = [process.loop for process in run.processes if process.loop is not None]
    return max(loops, key=lambda loop: loop.seconds, default=None)


def loop_functions(run: Run) -> tuple[FunctionCost, ...]:
    """Where that loop spent its time; which part of it is loading is not known."""
    loop = loop_of(run)
    if loop is None or not loop.seconds:
        return ()
    seconds: defaultdict[tuple[str, str, int], float] = defaultdict(float)
    for place in loop.places:
        seconds[place[:3]] += place.seconds
    costs = [FunctionCost(*key, Cause.UNKNOWN, s, s / loop.seconds) for key, s in seconds.items()]
    return tuple(sorted(costs, key=lambda cost: -cost.seconds))


def unseen_batches(run: Run) -> UnseenBatches | None:
    """What gave that loop its batches."""
    loop = loop_of(run)
    if loop is None or loop.batches is None or not loop.seconds:
        return None
    kind, name, file, line, text, seconds = loop.batches
    return UnseenBatches(kind, name, file, line, text, min(seconds / loop.seconds, 1.0))
