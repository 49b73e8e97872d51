"""Every cause of the closed list that a wait can have is blamed when it is planted, and waits stay whole."""

from __future__ import annotations

import pytest

from fake_work import MS, batch_of, work_of
from unstarve.analyze.batch_production import EpochProduction, MadeBatch
from unstarve.analyze.blame import blame, fetch_cpu_s, split_collate, split_fetch, total
from unstarve.model import Batch, Cause, Received, Sent, Work


def production(
    *crew: list[Work],
    sent_ms: float = 0.0,
    receipts: dict[int, Received] | None = None,
    pacing: frozenset[int] = frozenset(),
) -> EpochProduction:
    """What workers made, one list of works each; every batch takes `sent_ms` of CPU to send."""
    members = []
    for place, works in enumerate(crew):
        sents = [Sent(w.task, 0, w.done_ns, w.done_ns, w.done_ns, round(sent_ms * MS)) for w in works]
        members.append(
            tuple(
                MadeBatch(place, w, s, (receipts or {}).get(w.task))
                for w, s in zip(works, sents, strict=True)
            )
        )
    by_task = {m.work.task: m for works in members for m in works}
    return EpochProduction(len(crew), by_task, tuple(members), pacing)


def alone(work: Work) -> EpochProduction:
    """What a training process without workers made."""
    made = MadeBatch(0, work, None, None)
    return EpochProduction(0, {work.task: made}, ((made,),))


def shares(batch: Batch, made: EpochProduction | None) -> dict[Cause, float]:
    """Milliseconds per cause, those of less than a hundredth left out; checks that they sum to the wait."""
    parts = blame(batch, made)
    assert sum(parts.values()) == pytest.approx(batch.wait_ns / 1e9)
    return in_ms(parts)


def in_ms(parts: dict[Cause, float]) -> dict[Cause, float]:
    """Milliseconds per cause, those of less than a hundredth left out."""
    assert all(seconds >= 0 for seconds in parts.values())
    return {cause: seconds * 1e3 for cause, seconds in parts.items() if seconds > 1e-5}


MEGABYTE = 1_000_000

FETCHES = [
    ({"cpu_ms": 10}, {Cause.CPU: 10}),
    ({"blocked_ms": 10}, {Cause.REMOTE: 10}),
    ({"queued_ms": 10}, {Cause.CONTENTION: 10}),
    ({"collate_ms": 10}, {Cause.COLLATE: 10}),
    ({"collate_queued_ms": 10}, {Cause.CONTENTION: 10}),
    ({"blocked_ms": 10, "storage_bytes": MEGABYTE, "asked_bytes": MEGABYTE}, {Cause.DISK: 10}),
    ({"blocked_ms": 10, "delay_ms": 8}, {Cause.DISK: 8, Cause.REMOTE: 2}),
    # The kernel's time for cold bytes is the disk's, the rest of the CPU's is not …
    (
        {"cpu_ms": 10, "system_ms": 6, "storage_bytes": MEGABYTE, "asked_bytes": MEGABYTE},
        {Cause.DISK: 6, Cause.CPU: 4},
    ),
    # … and for warm ones it is nobody else's.
    ({"cpu_ms": 10, "system_ms": 6, "asked_bytes": MEGABYTE}, {Cause.CPU: 10}),
    # A few cold bytes do not explain a second of waiting.
    (
        {"blocked_ms": 1000, "storage_bytes": 4096, "asked_bytes": 4096},
        {Cause.DISK: 4096 / 5e6 * 1e3, Cause.REMOTE: 1000 - 4096 / 5e6 * 1e3},
    ),
    ({"cpu_ms": 4, "queued_ms": 3, "blocked_ms": 3}, {Cause.CPU: 4, Cause.CONTENTION: 3, Cause.REMOTE: 3}),
]


@pytest.mark.parametrize(("cost", "expected"), FETCHES)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_wait_is_blamed_on_what_the_work_was(
    cost: dict[str, float], expected: dict[Cause, float], workers: int
) -> None:
    work = work_of(3, 100, **cost)  # type: ignore[arg-type]  # a table of keyword arguments
    made = production([work]) if workers else alone(work)
    batch = batch_of(3, 100, work.done_ns / MS)
    assert shares(batch, made) == pytest.approx(expected)


def test_what_counters_do_not_tell_is_unknown_and_the_rest_stays_true() -> None:
    nothing = work_of(
        3,
        0,
        cpu_ms=4,
        blocked_ms=6,
        queued_ms=None,
        storage_bytes=None,
        asked_bytes=None,
        collate_queued_ms=None,
    )
    assert shares(batch_of(3, 0, 10), production([nothing])) == pytest.approx(
        {Cause.CPU: 4, Cause.UNKNOWN: 6}
    )
    no_io = work_of(3, 0, cpu_ms=4, queued_ms=2, blocked_ms=4, storage_bytes=None)
    expected = {Cause.CPU: 4, Cause.CONTENTION: 2, Cause.UNKNOWN: 4}
    assert shares(batch_of(3, 0, 10), alone(no_io)) == pytest.approx(expected)


def test_shared_memory_made_while_collating_is_handing_over_in_a_worker_only() -> None:
    work = work_of(3, 0, collate_ms=10, collate_system_ms=6)
    batch = batch_of(3, 0, 10)
    assert shares(batch, production([work])) == pytest.approx({Cause.HANDOFF: 6, Cause.COLLATE: 4})
    assert shares(batch, alone(work)) == pytest.approx({Cause.COLLATE: 10})


def test_only_the_part_of_the_work_inside_the_wait_counts() -> None:
    work = work_of(3, 0, cpu_ms=90, collate_ms=10)  # asked for when there are 20 ms to go
    assert shares(batch_of(3, 80, 100), production([work])) == pytest.approx(
        {Cause.CPU: 10, Cause.COLLATE: 10}
    )


def test_a_worker_still_busy_with_an_earlier_batch_is_blamed_for_that() -> None:
    works = [work_of(2, 0, blocked_ms=30), work_of(3, 30, cpu_ms=10)]
    expected = {Cause.REMOTE: 30, Cause.CPU: 10}
    assert shares(batch_of(3, 0, 40), production(works)) == pytest.approx(expected)


def test_time_in_the_sampler_is_its_own() -> None:
    work = work_of(3, 0, cpu_ms=10)
    batch = batch_of(3, 0, 40, sampler_ms=30)
    expected = {Cause.SAMPLER: 30, Cause.CPU: 10}
    assert shares(batch, production([work])) == pytest.approx(expected)
    assert shares(batch, alone(work)) == pytest.approx(expected)


def test_an_idle_worker_and_a_long_way_are_the_handoff() -> None:
    work = work_of(3, 0, cpu_ms=1)
    assert shares(batch_of(3, 1, 21, wait_cpu_ms=5), production([work], sent_ms=10)) == pytest.approx(
        {Cause.HANDOFF: 20}
    )


def test_a_sender_starved_by_its_own_worker_is_blamed_on_what_that_is_busy_with() -> None:
    """The queue's thread needs the interpreter that the next batch's Python code holds."""
    works = [work_of(3, 0, cpu_ms=10), work_of(4, 10, cpu_ms=40)]
    parts = shares(batch_of(3, 10, 50, wait_cpu_ms=1), production(works, sent_ms=1))
    assert parts == pytest.approx({Cause.CPU: 38, Cause.HANDOFF: 2})


def test_a_pin_thread_is_blamed_for_pinning() -> None:
    work = work_of(3, 0, cpu_ms=1)
    receipt = Received(0, 0, 3, 2 * MS, 3 * MS, 21 * MS)
    parts = shares(batch_of(3, 1, 21), production([work], receipts={3: receipt}))
    assert parts == pytest.approx({Cause.PIN: 18, Cause.HANDOFF: 2})


def test_an_idle_worker_that_hands_out_a_batch_waits_for_a_core_like_the_busy_ones() -> None:
    done = work_of(3, 0, cpu_ms=1)
    crowd = [[work_of(10 + place, 0, cpu_ms=10, queued_ms=40)] for place in range(5)]
    parts = shares(batch_of(3, 20, 40), production([done], *crowd))
    assert parts == pytest.approx({Cause.CONTENTION: 16, Cause.HANDOFF: 4})
    # One busy worker that never waits for a core is not in its way.
    assert shares(batch_of(3, 20, 40), production([done], [work_of(10, 0, cpu_ms=50)])) == {
        Cause.HANDOFF: pytest.approx(20)
    }


def test_an_idle_worker_waits_for_a_core_like_the_step_just_before() -> None:
    batch = batch_of(3, 20, 40)._replace(step_queued_ns=30 * MS, step_cpu_ns=10 * MS)
    parts = shares(batch, production([work_of(3, 0, cpu_ms=1)]))
    assert parts == pytest.approx({Cause.CONTENTION: 15, Cause.HANDOFF: 5})


def test_a_task_on_its_way_to_an_idle_worker_waits_for_a_core_like_the_busy_ones() -> None:
    late = work_of(3, 30, cpu_ms=10)
    crowd = [[work_of(10 + place, 0, cpu_ms=10, queued_ms=30)] for place in range(4)]
    parts = shares(batch_of(3, 10, 40), production([late], *crowd))
    assert parts == pytest.approx(
        {Cause.CONTENTION: 20 * 90 / 130, Cause.HANDOFF: 20 * 40 / 130, Cause.CPU: 10}
    )


def test_a_training_thread_without_a_core_is_contention() -> None:
    work = work_of(3, 0, cpu_ms=1)
    parts = shares(batch_of(3, 1, 21, wait_queued_ms=15), production([work]))
    assert parts == pytest.approx({Cause.CONTENTION: 15, Cause.HANDOFF: 5})


def test_handing_over_costs_nothing_while_the_worker_that_sets_the_pace_goes_on() -> None:
    works = [work_of(3, 0, cpu_ms=4), work_of(4, 4, blocked_ms=2, collate_ms=2)]
    batch = batch_of(3, 2, 8, wait_cpu_ms=3)
    idle = shares(batch, production(works, sent_ms=1))
    assert idle == pytest.approx({Cause.CPU: 2, Cause.HANDOFF: 4})
    paced = shares(batch, production(works, sent_ms=1, pacing=frozenset([0])))
    assert paced == pytest.approx({Cause.CPU: 2, Cause.REMOTE: 2, Cause.COLLATE: 2})


def test_what_a_worker_that_sets_the_pace_did_not_work_is_the_handoff() -> None:
    parts = shares(batch_of(3, 2, 8), production([work_of(3, 0, cpu_ms=4)], pacing=frozenset([0])))
    assert parts == pytest.approx({Cause.CPU: 2, Cause.HANDOFF: 4})


def test_order_is_blamed_when_later_batches_lie_ready_and_their_workers_idle() -> None:
    late = [work_of(4, 0, blocked_ms=100)]
    quick = [work_of(5, 0, blocked_ms=10), work_of(7, 10, blocked_ms=10)]  # then there is nothing left to do
    parts = shares(batch_of(4, 0, 100), production(late, quick))
    assert parts == pytest.approx({Cause.ORDER: 80, Cause.REMOTE: 20})


def test_order_is_not_blamed_while_the_other_workers_are_busy() -> None:
    late = [work_of(4, 0, blocked_ms=100)]
    busy = [work_of(5, 0, blocked_ms=50), work_of(7, 50, blocked_ms=60)]
    assert shares(batch_of(4, 0, 100), production(late, busy)) == pytest.approx({Cause.REMOTE: 100})


def test_order_is_not_blamed_when_nothing_later_is_ready() -> None:
    late, lazy = [work_of(4, 0, blocked_ms=100)], [work_of(3, -50, blocked_ms=10)]
    assert shares(batch_of(4, 0, 100), production(late, lazy)) == pytest.approx({Cause.REMOTE: 100})


def test_a_single_worker_has_nothing_to_hold_back() -> None:
    works = [work_of(4, 0, blocked_ms=100), work_of(5, 100, blocked_ms=1)]
    assert shares(batch_of(4, 0, 100), production(works)) == pytest.approx({Cause.REMOTE: 100})


def test_the_first_batch_of_workers_is_startup_and_without_workers_it_is_work() -> None:
    work = work_of(0, 0, cpu_ms=10)
    batch = batch_of(0, 0, 10)
    assert shares(batch, production([work])) == pytest.approx({Cause.STARTUP: 10})
    assert shares(batch, None) == pytest.approx({Cause.STARTUP: 10})
    assert shares(batch, alone(work)) == pytest.approx({Cause.CPU: 10})


def test_a_core_that_is_missed_between_ask_and_fetch_is_contention() -> None:
    work, batch = work_of(3, 8, cpu_ms=2), batch_of(3, 0, 11)
    assert shares(batch, alone(work)) == pytest.approx({Cause.CPU: 2, Cause.UNKNOWN: 9})
    queued = batch._replace(step_queued_ns=50 * MS)
    assert shares(queued, alone(work)) == pytest.approx({Cause.CPU: 2, Cause.CONTENTION: 8, Cause.UNKNOWN: 1})


def test_a_fetch_that_waits_for_its_own_threads_to_compute_is_on_a_cpu() -> None:
    pooled = work_of(3, 0, cpu_ms=2, queued_ms=1, blocked_ms=10, helped_ms=18)
    assert in_ms(split_fetch(pooled)) == pytest.approx({Cause.CPU: 12, Cause.CONTENTION: 1})
    assert fetch_cpu_s(pooled) == pytest.approx(0.012)


def test_a_fetch_whose_threads_wait_as_well_is_blocked() -> None:
    requests = work_of(3, 0, cpu_ms=2, blocked_ms=10, helped_ms=4)
    assert in_ms(split_fetch(requests)) == pytest.approx({Cause.CPU: 2, Cause.REMOTE: 10})


def test_indices_that_are_drawn_before_the_first_batch_comes_are_the_samplers() -> None:
    batch = batch_of(0, 0, 10)._replace(sampler_ns=4 * MS)
    expected = {Cause.SAMPLER: 4, Cause.STARTUP: 6}
    assert shares(batch, production([work_of(0, 0, cpu_ms=10)])) == pytest.approx(expected)


@pytest.mark.parametrize("task", [None, 99])
def test_a_loader_whose_inside_is_not_seen_is_mostly_unknown(task: int | None) -> None:
    batch = batch_of(task, 0, 10, position=4, wait_cpu_ms=3, wait_queued_ms=2)
    expected = {Cause.CPU: 3, Cause.CONTENTION: 2, Cause.UNKNOWN: 5}
    assert shares(batch, None) == pytest.approx(expected)
    assert shares(batch, production([work_of(3, 0, cpu_ms=1)])) == pytest.approx(expected)


def test_a_wait_of_no_length_has_no_cause() -> None:
    work = work_of(3, 0, cpu_ms=10)
    assert sum(blame(batch_of(3, 20, 20), production([work])).values()) == 0


def test_clocks_that_disagree_do_not_unbalance_the_books() -> None:
    work = work_of(3, 0, cpu_ms=15)  # seems to end after the batch was delivered
    assert shares(batch_of(3, 0, 10), production([work])) == pytest.approx({Cause.CPU: 10})
    overcounted = work_of(3, 0, cpu_ms=10)._replace(cpu_ns=40 * MS, queued_ns=40 * MS)
    assert sum(split_fetch(overcounted).values()) == pytest.approx(0.010)
    assert sum(split_collate(work_of(3, 0, collate_ms=5), in_worker=True).values()) == pytest.approx(0.005)


def test_totals_add_up_per_cause() -> None:
    assert total([{Cause.CPU: 1.0}, {Cause.CPU: 2.0, Cause.DISK: 3.0}]) == {Cause.CPU: 3.0, Cause.DISK: 3.0}
