"""Of ranks that wait for each other, the model reads the batches of the one that came last."""

from __future__ import annotations

import pytest

from fakes import run_of
from rank_runs import met_job
from unstarve.analyze.batch_production import recorded_trainings
from unstarve.predict.training_job import jobs_of

STEPS = 60


def test_the_rank_that_the_others_wait_for_leads() -> None:
    run = run_of(*met_job(3, STEPS, data=lambda rank, step: 30 * (rank == 1)))
    (job,) = jobs_of(recorded_trainings(run, 5))
    assert job.lead.timeline.process.rank == 1
    assert [len(keys) for _, keys in job.last] == [0, STEPS - 5, 0]
    assert job.lost_share == pytest.approx(31 / 40, rel=0.01)


def test_each_batch_is_that_of_the_last_rank() -> None:
    run = run_of(*met_job(2, STEPS, data=lambda rank, step: 30 * (rank == step % 2)))
    (job,) = jobs_of(recorded_trainings(run, 5))
    first, second = (keys for _, keys in job.last)
    assert {key % 2 for key in first} == {0}
    assert {key % 2 for key in second} == {1}
    assert len(first) + len(second) == STEPS - 5


def test_processes_that_do_not_wait_for_each_other_are_jobs_of_their_own() -> None:
    run = run_of(*met_job(2, STEPS, data=lambda rank, step: 30 * rank, meets=lambda step: False))
    jobs = jobs_of(recorded_trainings(run, 5))
    assert [job.lead.timeline.process.rank for job in jobs] == [0, 1]
    assert all(job.lost_share is None for job in jobs)
