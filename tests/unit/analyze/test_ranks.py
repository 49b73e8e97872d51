"""Several ranks: a straggler is told apart from the ranks that wait for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from fakes import FakeTraining, run_of
from unstarve.analyze.diagnose import analyze_run
from unstarve.model import Diagnosis, State
from unstarve.model.rank_summary import RankPattern, RankSummary

STEPS = 100
Wait = Callable[[int, int], float]
"""Seconds that a rank waits in a step."""


def _synchronous(wait_s: Wait, ranks: int = 4, work_s: float = 0.01, per_host: int = 4) -> Diagnosis:
    """Ranks that leave each step together, on clocks that differ by machine."""
    processes = []
    for rank in range(ranks):
        training = FakeTraining(rank=rank, now_ns=10**9 * (1 + rank // per_host * 500))
        training.epoch(
            (wait_s(rank, step), max(wait_s(r, step) for r in range(ranks)) + work_s - wait_s(rank, step))
            for step in range(STEPS)
        )
        processes.append(dataclasses.replace(training.process(), host=f"node{rank // per_host}"))
    return analyze_run(run_of(*processes))


def _ranks(diagnosis: Diagnosis) -> RankSummary:
    assert diagnosis.rank_times is not None
    return diagnosis.rank_times


@pytest.mark.parametrize(
    ("wait_s", "pattern", "late"),
    [
        (lambda rank, step: 0.001, RankPattern.EVEN, ()),
        (lambda rank, step: 0.05, RankPattern.EVEN, ()),
        (lambda rank, step: 0.05 + 0.001 * ((rank + step) % 3), RankPattern.EVEN, ()),
        (lambda rank, step: 0.09 if rank == 2 else 0.0, RankPattern.FIXED, (2,)),
        (lambda rank, step: 0.05 if rank == 0 and step % 3 else 0.001, RankPattern.FIXED, (0,)),
        (lambda rank, step: 0.04 if rank == step % 4 else 0.001, RankPattern.ROTATING, ()),
        (lambda rank, step: 0.04 if rank == step * 7919 % 101 % 4 else 0.001, RankPattern.ROTATING, ()),
        (lambda rank, step: 0.5 if rank == 1 and step % 20 == 10 else 0.001, RankPattern.PAUSE, (1,)),
    ],
)
def test_the_pattern_of_late_ranks(wait_s: Wait, pattern: RankPattern, late: tuple[int, ...]) -> None:
    found = _ranks(_synchronous(wait_s))
    assert (found.pattern, found.late) == (pattern, late)


def test_a_slow_machine_is_not_one_slow_rank() -> None:
    found = _ranks(
        _synchronous(lambda rank, step: 0.04 + rank * step % 5 / 1e3 if rank >= 6 else 0.001, 8, per_host=2)
    )
    assert (found.pattern, found.late) == (RankPattern.NODE, (6, 7))


def test_headroom_is_that_of_the_rank_the_others_wait_for() -> None:
    diagnosis = _synchronous(lambda rank, step: 0.09 if rank == 2 else 0.0)
    assert diagnosis.headroom is not None
    assert diagnosis.headroom.speedup == pytest.approx(10, rel=0.05)
    assert diagnosis.verdict.state is State.STARVED
    assert "Rank 2 came last" in diagnosis.verdict.headline
    found = _ranks(diagnosis)
    assert (found.step_ms, found.even_ms, found.free_ms) == pytest.approx((100, 10, 10), rel=0.01)


def test_ranks_that_do_not_wait_for_each_other_are_not_compared() -> None:
    trainings = [FakeTraining(rank=rank) for rank in range(2)]
    for training, wait_s in zip(trainings, (0.001, 0.09), strict=True):
        training.epoch([(wait_s, 0.01)] * STEPS)
    assert analyze_run(run_of(*trainings)).rank_times is None


def test_one_process_has_no_ranks_to_compare() -> None:
    training = FakeTraining(rank=0)
    training.epoch([(0.05, 0.01)] * STEPS)
    assert analyze_run(run_of(training)).rank_times is None
