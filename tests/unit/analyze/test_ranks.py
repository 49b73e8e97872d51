"""Several ranks: a straggler is told apart from the ranks that wait for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from fakes import FakeTraining, run_of
from rank_runs import MS, met_job
from unstarve.analyze.diagnose import analyze_run
from unstarve.model import Diagnosis, State
from unstarve.model.rank_summary import RankPattern, RankReason, RankSummary

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
        (lambda rank, step: 0.04 if rank % 2 else 0.001, RankPattern.FIXED, (1, 3)),
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


@pytest.mark.parametrize(
    ("planted", "pattern", "late", "reason", "every"),
    [
        ({"backward": lambda r, s: 30 * (r == 2)}, RankPattern.FIXED, (2,), RankReason.BACKWARD, None),
        ({"forward": lambda r, s: 30 * (r == 1)}, RankPattern.FIXED, (1,), RankReason.FORWARD, None),
        ({"data": lambda r, s: 30 * (r == 3)}, RankPattern.FIXED, (3,), RankReason.DATA, None),
        (
            {"after": lambda r, s: 500 * (r == 0 and s % 20 == 19)},
            RankPattern.PAUSE, (0,), RankReason.AFTER, 20,
        ),
        ({"backward": lambda r, s: 30 * (r == s % 4)}, RankPattern.ROTATING, (), RankReason.BACKWARD, None),
        ({"data": lambda r, s: 30}, RankPattern.EVEN, (), None, None),
        (
            {"backward": lambda r, s: 30 * (r == s % 4), "nbytes": lambda r, s: 1000 + 5000 * (r == s % 4)},
            RankPattern.ROTATING, (), RankReason.SIZE, None,
        ),
        (
            {"forward": lambda r, s: 30 * (r == 1), "queued": lambda r, s: 30 * (r == 1)},
            RankPattern.FIXED, (1,), RankReason.CORES, None,
        ),
    ],
)  # fmt: skip
def test_arrivals_tell_who_is_late_and_why(
    planted: dict[str, Callable[[int, int], float]],
    pattern: RankPattern,
    late: tuple[int, ...],
    reason: RankReason | None,
    every: int | None,
) -> None:
    found = _ranks(analyze_run(run_of(*met_job(4, STEPS, **planted))))
    assert found.arrivals
    assert (found.pattern, found.late, found.reason, found.every) == (pattern, late, reason, every)


def test_a_victim_with_a_long_backward_pass_is_not_blamed() -> None:
    """All others spend 30 ms in their backward pass as well: blocked, waiting for rank 2."""
    ranks = met_job(4, STEPS, data=lambda r, s: 30 * (r == 2))
    passes = [[one.end_ns - one.begin_ns for one in rank.meetings] for rank in ranks]
    assert min(passes[0]) > 30 * MS > 5 * max(passes[2])
    found = _ranks(analyze_run(run_of(*ranks)))
    assert found.late == (2,)
    assert [one.blocked_ms for one in found.by_rank] == pytest.approx([31, 31, 1, 31], abs=0.1)


def test_the_books_of_a_job_balance_and_are_those_of_its_last_rank() -> None:
    diagnosis = analyze_run(run_of(*met_job(4, STEPS, data=lambda r, s: 90 * (r == s % 4))))
    assert diagnosis.wait_share == pytest.approx(0.91, abs=0.02)
    total_s = sum(one.seconds for one in [*diagnosis.budget, *diagnosis.outside])
    assert total_s == pytest.approx(diagnosis.wall_s, rel=0.001)
    waited_s = sum(one.seconds for one in diagnosis.budget if one.cause != "compute")
    assert waited_s / sum(one.seconds for one in diagnosis.budget) == pytest.approx(0.91, abs=0.02)
    assert diagnosis.headroom is not None
    assert diagnosis.headroom.speedup == pytest.approx(100 / 9, rel=0.05)


def test_waits_that_another_rank_covers_are_no_headroom() -> None:
    diagnosis = analyze_run(
        run_of(*met_job(2, STEPS, data=lambda r, s: 30 * (r == 0), backward=lambda r, s: 30 * (r == 1)))
    )
    assert diagnosis.headroom is not None
    assert diagnosis.headroom.speedup == pytest.approx(40 / 39, rel=0.01)  # 1 ms on both ranks


def test_steps_that_only_accumulate_gradients_are_parts_of_one() -> None:
    """Rank 0 is slow in one part and rank 1 in the other: nobody waits, because they meet after both."""
    ranks = met_job(2, 4 * STEPS, forward=lambda r, s: 30 * (r == s % 2), meets=lambda s: s % 4 == 3)
    found = _ranks(analyze_run(run_of(*ranks)))
    assert found.pattern is RankPattern.EVEN


def test_batches_of_an_accumulated_step_all_count() -> None:
    ranks = met_job(2, 4 * STEPS, data=lambda r, s: 30 * r, meets=lambda s: s % 4 == 3)
    evidence = " ".join(analyze_run(run_of(*ranks)).verdict.evidence)
    assert f"{4 * STEPS - 6} measured steps" in evidence


def test_ranks_that_meet_now_and_then_wait_for_each_other_all_the_same() -> None:
    """Parameters are averaged every tenth step."""
    ranks = met_job(2, 150, data=lambda r, s: 27 * r, meets=lambda s: s % 10 == 9)
    diagnosis = analyze_run(run_of(*ranks))
    found = _ranks(diagnosis)
    assert (found.pattern, found.late, found.reason) == (RankPattern.FIXED, (1,), RankReason.DATA)
    assert diagnosis.headroom is not None
    assert diagnosis.headroom.speedup == pytest.approx(found.step_ms / found.free_ms, rel=0.01)
    assert diagnosis.headroom.speedup > 4


def test_a_rank_that_validates_alone_is_late_for_that() -> None:
    steps = 4 * STEPS
    ranks = met_job(2, steps, validation=lambda r, s: 300 * (r == 0 and s % 40 == 39))
    diagnosis = analyze_run(run_of(*ranks))
    found = _ranks(diagnosis)
    assert (found.pattern, found.late, found.reason) == (RankPattern.PAUSE, (0,), RankReason.VALIDATION)
    assert found.every == 40
    assert "Rank 0 paused every 40 steps, in validation, and the others waited" in diagnosis.verdict.headline


def test_waiting_for_a_second_loader_of_the_step_is_waiting_for_data() -> None:
    ranks = met_job(2, STEPS, beside=lambda r, s: 30 * r)
    diagnosis = analyze_run(run_of(*ranks))
    found = _ranks(diagnosis)
    assert (found.pattern, found.late, found.reason) == (RankPattern.FIXED, (1,), RankReason.DATA)
    assert diagnosis.headroom is not None
    assert diagnosis.headroom.speedup == pytest.approx(40 / 9, rel=0.05)


@pytest.mark.parametrize(
    ("slow", "pattern", "late"),
    [(lambda epoch: 1, RankPattern.PAUSE, (1,)), (lambda epoch: epoch % 2, RankPattern.EVEN, ())],
)
def test_a_rank_that_is_last_to_start_in_every_epoch_is_late(
    slow: Callable[[int], int], pattern: RankPattern, late: tuple[int, ...]
) -> None:
    ranks = met_job(2, 8 * 20, data=lambda r, s: 300 * (s % 20 == 0 and r == slow(s // 20)), epoch_steps=20)
    found = _ranks(analyze_run(run_of(*ranks)))
    assert (found.pattern, found.late) == (pattern, late)


def test_of_late_ranks_with_different_reasons_the_worst_is_named() -> None:
    ranks = met_job(4, 200, data=lambda r, s: 20 * (r == 1), after=lambda r, s: 200 * (r == 3 and s % 7 == 0))
    found = _ranks(analyze_run(run_of(*ranks)))
    assert (found.pattern, found.late, found.reason) == (RankPattern.FIXED, (3,), RankReason.AFTER)


def test_the_gain_is_that_of_the_ranks_that_are_named() -> None:
    """Rank 1 is nearly always last, and rank 0 in some of the other steps."""
    ranks = met_job(2, STEPS + 5, data=lambda r, s: 30 * (s % 5 != 0) if r else 20 * (s % 5 == 0))
    diagnosis = analyze_run(run_of(*ranks))
    assert _ranks(diagnosis).late == (1,)
    assert "a step takes 38.0 ms; without that it would take 14.0 ms." in diagnosis.verdict.headline


def test_of_restarted_ranks_the_longest_attempt_is_reported() -> None:
    first = [dataclasses.replace(rank, pid=rank.pid + 50) for rank in met_job(2, 30)]
    second = [dataclasses.replace(rank, attempt=1) for rank in met_job(2, STEPS, data=lambda r, s: 30 * r)]
    diagnosis = analyze_run(run_of(*first, *second))
    assert (diagnosis.ranks, _ranks(diagnosis).late) == (2, (1,))
    (told,) = [line for line in diagnosis.lost if "restarted" in line]
    assert told == (
        f"the ranks were restarted once: attempt 1 took 30 steps, attempt 2 took {STEPS} steps; "
        "this report covers attempt 2"
    )


def test_more_workers_than_cores_on_a_machine_is_evidence() -> None:
    ranks = [
        dataclasses.replace(
            rank,
            system={"cores": 2},
            loaders=tuple(dataclasses.replace(one, config={"num_workers": 4}) for one in rank.loaders),
        )
        for rank in met_job(2, STEPS)
    ]
    assert "here runs 8 workers of 2 ranks on 2 cores" in analyze_run(run_of(*ranks)).verdict.evidence


def test_the_heat_map_shows_when_a_rank_was_late() -> None:
    ranks = met_job(2, STEPS + 5, data=lambda r, s: 30 * (r == 1 and s > STEPS / 2))
    heat = _ranks(analyze_run(run_of(*ranks))).heat
    assert heat is not None
    assert set(heat.rows[0]) == {0}
    assert heat.rows[1][0] == 0
    assert heat.rows[1][-1] == 100
