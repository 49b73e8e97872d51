"""The ranks of a training → what the model reads: batches of the rank that the others waited for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unstarve.analyze.batch_production import RecordedTraining
from unstarve.analyze.critical_rank import critical_batches
from unstarve.analyze.rank_rounds import key_of, rounds_of
from unstarve.analyze.ranks import joint_rounds
from unstarve.predict.recorded_run import RecordedBatch, recorded_batches


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """One training: a process, or ranks that wait for each other."""

    lead: RecordedTraining
    """The process, or the rank that was last most often."""
    last: tuple[tuple[RecordedTraining, frozenset[int]], ...] = ()
    """For each rank with a loader like that of `lead`: keys of the batches for which the others waited."""
    lost_share: float | None = None
    """Share of the job's time that it would save if loading were free; None for a single process."""

    def recorded(self, loader: int) -> Sequence[RecordedBatch]:
        """The batches of this loader, in order; of ranks, those of the rank that came last."""
        if not self.last:
            return _recorded(self.lead, loader)
        found = [
            one
            for training, keys in self.last
            for one in _recorded(training, loader)
            if key_of(one.batch) in keys
        ]
        return sorted(found, key=lambda one: key_of(one.batch))


def jobs_of(trainings: Sequence[RecordedTraining]) -> list[TrainingJob]:
    """One job for ranks that wait for each other, otherwise one for each process."""
    joint = joint_rounds([rounds_of(training.timeline) for training in trainings])
    if joint is None:
        return [TrainingJob(training) for training in trainings]
    by_rank = {training.timeline.process.rank: training for training in trainings}
    ranks = [
        (by_rank[one.rank], keys) for one, keys in zip(joint.ranks, critical_batches(joint), strict=True)
    ]
    lead, _ = max(ranks, key=lambda one: len(one[1]))
    like = tuple(one for one in ranks if _workers(one[0]) == _workers(lead))
    return [TrainingJob(lead, like, float(1 - joint.free_s.sum() / joint.rounds_s.sum()))]


def _recorded(training: RecordedTraining, loader: int) -> Sequence[RecordedBatch]:
    made = {epoch: made for (number, epoch), made in training.productions.items() if number == loader}
    return recorded_batches(training.timeline, made)


def _workers(training: RecordedTraining) -> object:
    timeline = training.timeline
    return next(
        (x.config.get("num_workers") for x in timeline.process.loaders if x.id == timeline.main), None
    )
