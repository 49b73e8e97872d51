"""What an accelerator's own clock says about waits: when it was idle, and how far it is behind training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from unstarve.analyze.rank_rounds import key_at
from unstarve.model import Batch
from unstarve.predict.recorded_run import RecordedBatch
from unstarve.predict.training_job import TrainingJob

_HARDLY = 0.1

Stalls = Mapping[tuple[int, int], int]
"""Nanoseconds of each wait in which the accelerator was idle, by epoch and position."""


def stalls_of(job: TrainingJob, loader: int) -> dict[tuple[int, int], int]:
    """Nanoseconds per batch, of the device that stalled the longest."""
    found: dict[tuple[int, int], int] = {}
    for training, keys in job.last or ((job.lead, None),):
        for stall in training.timeline.process.stalls:
            if stall.loader == loader and (keys is None or key_at(stall.epoch, stall.position) in keys):
                key = (stall.epoch, stall.position)
                found[key] = max(found.get(key, 0), stall.stall_ns)
    return found


def stall_ns(batch: Batch, stalls: Stalls) -> int:
    """Part of a wait in which the accelerator was idle by its own clock; all of it where there is none."""
    return min(stalls.get((batch.epoch, batch.position), batch.wait_ns), batch.wait_ns)


def runs_on(batch: Batch, stalls: Stalls) -> bool:
    """The accelerator was busy during the whole wait."""
    return stall_ns(batch, stalls) < _HARDLY * batch.wait_ns


def most_ahead_s(recorded: Sequence[RecordedBatch], stalls: Stalls) -> float:
    """How long the accelerator works on after a batch was asked for, where it came to rest in the wait.

    If it never does, training is held up inside its steps until earlier ones are done: time off the CPU that
    goes away in a setting in which it waits for data. That is no more than this, if it is known.
    """
    ahead = [
        one.after.wait_ns - stall_ns(one.after, stalls)
        for one in recorded
        if (one.after.epoch, one.after.position) in stalls
        and one.after.position
        and not runs_on(one.after, stalls)
    ]
    return median(ahead) / 1e9 if ahead else math.inf


def lost_share(recorded: Sequence[RecordedBatch], stalls: Stalls) -> float:
    """Share of the waiting in which an accelerator was idle."""
    waited_ns = sum(one.batch.wait_ns for one in recorded)
    return sum(stall_ns(one.batch, stalls) for one in recorded) / waited_ns if waited_ns else 1.0
