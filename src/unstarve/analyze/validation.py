"""Validation loops that take a good part of a run: which, how much of it, and how well they are fed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from unstarve.analyze.batch_production import RecordedTraining
from unstarve.analyze.loader_summary import LoaderKey, loader_key
from unstarve.analyze.timeline import build_timeline
from unstarve.analyze.verdict import WHY
from unstarve.model import Diagnosis, State
from unstarve.words import percent

_WORTH_TELLING = 0.05
"""Smallest share of the run."""


@dataclass(frozen=True, slots=True)
class ValidationLoop:
    """The validation epochs of one loader, on all ranks."""

    loader: LoaderKey
    share: float
    """Of the run's wall time."""
    trainings: tuple[RecordedTraining, ...]
    """Their timelines are about these epochs alone."""


def validation_loops(trainings: Sequence[RecordedTraining], wall_s: float) -> list[ValidationLoop]:
    """The loops that are long enough for a separate verdict, longest first."""
    found: defaultdict[LoaderKey, list[RecordedTraining]] = defaultdict(list)
    for training in trainings:
        process = training.timeline.process
        validating = {span.validation for span in training.timeline.spans}
        numbers: defaultdict[LoaderKey, set[int]] = defaultdict(set)
        for loader in process.loaders:
            if loader.id in validating:
                numbers[loader_key(loader)].add(loader.id)
        for key, own in numbers.items():
            timeline = build_timeline(process, 0, own)
            if timeline is not None:
                found[key].append(RecordedTraining(timeline, training.productions))
    loops = [
        ValidationLoop(key, _own_s(loop) / len(trainings) / wall_s, tuple(loop))
        for key, loop in found.items()
        if wall_s > 0
    ]
    return sorted((one for one in loops if one.share >= _WORTH_TELLING), key=lambda one: -one.share)


def _own_s(loop: Sequence[RecordedTraining]) -> float:
    return sum(span.seconds for training in loop for span in training.timeline.own)


def validation_headline(loop: ValidationLoop, found: Diagnosis) -> str:
    """One sentence about a loop, from the diagnosis of its epochs."""
    told = f"Validation ({loop.loader[0]}) takes {percent(loop.share)} of the run"
    lost = found.wait_share if found.stall_share is None else found.stall_share
    if found.verdict.state is State.INCONCLUSIVE or lost is None:
        return f"{told}."
    why = None if found.verdict.state is State.FED else WHY.get(found.verdict.cause)
    return f"{told} and waits for data {percent(lost)} of that time" + (f", mostly {why}." if why else ".")
