"""What a run does now, from its last seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fake_work import MS, batch_of, work_of
from unstarve.analyze.live_training import live_of
from unstarve.model import (
    Batch,
    Cause,
    Crew,
    Doing,
    Epoch,
    Live,
    Loader,
    Process,
    Pulse,
    Run,
    RunState,
    Sent,
    Stall,
    Tail,
    Work,
)

CONFIG = {"num_workers": 2, "prefetch_factor": 2}


def pulse(
    at_ms: float,
    doing: Doing | None,
    *,
    cpu_ms: float | None = 0.0,
    queued_ms: float | None = 0.0,
    storage: int | None = 0,
    rss: int | None = 100,
    shm: int | None = None,
) -> Pulse:
    cpu, queued = (None if ms is None else round(ms * MS) for ms in (cpu_ms, queued_ms))
    return Pulse(
        round(at_ms * MS), doing, cpu, queued, storage, rss, None, shm, None if shm is None else 10 * shm
    )


def process_of(batches: Sequence[Batch] = (), *, pid: int = 1, rank: int | None = None) -> Process:
    return Process(
        pid=pid,
        host="here",
        rank=rank,
        worker=False,
        device="cpu",
        versions={},
        start_ns=0,
        clock_offset_ns=0,
        loaders=(Loader(0, "train", "train.py:3", "DataLoader", CONFIG), Loader(1, "val", "train.py:9", "D")),
        epochs=(),
        batches=tuple(batches),
        end_ns=None,
        stopped=None,
        lost=(),
        crews=(Crew(0, 0, (11, 12)),),
    )


def worker_of(pid: int, works: Sequence[Work] = (), pulses: Sequence[Pulse] = ()) -> Process:
    return replace(process_of(pid=pid), worker=True, works=tuple(works), pulses=tuple(pulses), crews=())


def steps(count: int, every_ms: float, wait_ms: float, *, loader: int = 0, from_ms: float = 0) -> list[Batch]:
    """Batches that are waited for at the end of each step."""
    ends = [from_ms + (i + 1) * every_ms for i in range(count)]
    return [batch_of(i, end - wait_ms, end, loader=loader) for i, end in enumerate(ends)]


def now(
    *processes: Process,
    exit_code: int | None = None,
    live: bool = True,
    silent_s: float = 0.5,
    at_s: float = 100,
) -> Live:
    run = Run("a.unstarve", ("train.py",), "run", 40.0, processes, exit_code, live, ())
    delivered = {
        ("here", p.pid): {n: 1000 + n for n in {b.loader for b in p.batches}}
        for p in processes
        if not p.worker
    }
    return live_of(Tail(run, delivered, 5.0, silent_s), at_s)


def test_a_run_without_batches_is_running_and_knows_nothing_yet() -> None:
    live = now()
    assert (live.state, live.steps, live.elapsed_s) == (RunState.RUNNING, 0, 60.0)
    assert (live.steps_per_s, live.wait_share, live.queue_depth, live.memory.main_bytes) == (None,) * 4
    assert live.trainers == ()


@pytest.mark.parametrize(
    ("exit_code", "running", "state"),
    [(None, True, "running"), (0, False, "finished"), (None, False, "died")],
)
def test_a_run_that_has_ended_is_as_old_as_it_was_then(exit_code: int, running: bool, state: str) -> None:
    live = now(exit_code=exit_code, live=running, silent_s=10.0)
    assert live.state == state
    assert live.elapsed_s == (60.0 if running else 50.0)


def test_rates_and_shares_are_those_of_the_last_seconds() -> None:
    slow_then_fast = [*steps(5, 1000, 900), *steps(50, 100, 30, from_ms=5000)]
    live = now(process_of(slow_then_fast))
    assert live.steps_per_s == pytest.approx(10)
    assert live.samples_per_s == pytest.approx(80)
    assert live.wait_share == live.stall_share == pytest.approx(0.3)
    assert live.steps == 1000
    (trainer,) = live.trainers
    assert (trainer.doing, trainer.since_s) == (Doing.STEP, None)
    assert (trainer.loader.name, trainer.loader.position, trainer.loader.queue_room) == ("train", 49, 4)


@pytest.mark.parametrize(("wait_ms", "looks"), [(2, "fed"), (10, "tight"), (40, "starved")])
def test_the_last_seconds_have_a_state_by_the_thresholds_of_the_verdict(wait_ms: int, looks: str) -> None:
    assert now(process_of(steps(60, 100, wait_ms))).looks == looks
    assert now().looks is None


def test_the_start_of_an_epoch_is_waiting() -> None:
    process = replace(process_of(steps(60, 100, 0)), epochs=(Epoch(0, 0, 2000 * MS, 4500 * MS, 0, False),))
    assert now(process).wait_share == pytest.approx(0.5)


def test_slow_steps_have_a_rate_although_the_window_holds_one_of_them() -> None:
    live = now(process_of(steps(3, 8000, 4000)))
    assert live.steps_per_s == pytest.approx(1 / 8)


def test_a_wait_that_lasts_is_told_before_it_is_over() -> None:
    pulses = [pulse(1000 + 1000 * i, Doing.STEP if i == 0 else Doing.WAIT) for i in range(11)]
    live = now(replace(process_of(steps(10, 100, 10)), pulses=tuple(pulses)))
    (trainer,) = live.trainers
    assert (trainer.doing, trainer.since_s) == (Doing.WAIT, pytest.approx(9))
    assert live.wait_share == pytest.approx(1)
    assert live.steps_per_s == 0


def test_without_workers_fetching_is_a_wait_of_training() -> None:
    pulses = (pulse(2000, Doing.FETCH), pulse(3000, Doing.COLLATE))
    (trainer,) = now(replace(process_of(steps(10, 100, 10)), pulses=pulses)).trainers
    assert (trainer.doing, trainer.since_s) == (Doing.WAIT, pytest.approx(1))


def test_a_step_that_lasts_lasts_since_its_batch_came() -> None:
    (trainer,) = now(replace(process_of(steps(10, 100, 10)), pulses=(pulse(4000, Doing.STEP),))).trainers
    assert (trainer.doing, trainer.since_s) == (Doing.STEP, pytest.approx(3))


def test_on_a_device_its_own_events_tell_the_stall() -> None:
    batches = steps(20, 100, 50)
    stalls = tuple(Stall(0, 0, i, 0, b.ask_ns, b.got_ns, 10 * MS) for i, b in enumerate(batches))
    live = now(replace(process_of(batches), device="GPU", stalls=stalls))
    assert live.wait_share == pytest.approx(0.5, abs=0.02)
    assert live.stall_share == pytest.approx(0.1, abs=0.01)
    assert now(replace(process_of(batches), device="GPU")).stall_share is None


def epoch(loader: int, begin_ms: int, end_ms: int | None = None) -> Epoch:
    end_ns = None if end_ms is None else end_ms * MS
    return Epoch(loader, 0, begin_ms * MS, begin_ms * MS, 0, False, end_ns, end_ns)


def leading(batches: Sequence[Batch], *epochs: Epoch) -> str:
    (trainer,) = now(replace(process_of(batches), epochs=epochs)).trainers
    return trainer.loader.name


def test_validation_leads_from_its_begin_to_its_end() -> None:
    trained, validated = steps(40, 100, 5), steps(5, 10, 5, loader=1, from_ms=4000)
    again = steps(1, 100, 5, from_ms=4100)
    train = epoch(0, 0)
    assert leading(trained, train) == "train"
    assert leading([*trained, *validated], train, epoch(1, 4000)) == "val"
    assert leading([*trained, *validated], train, epoch(1, 4000, 4060)) == "train"
    assert leading([*trained, *validated, *again], train, epoch(1, 4000, 4060)) == "train"


def test_of_loaders_asked_side_by_side_the_first_leads() -> None:
    both = sorted([*steps(40, 100, 5), *steps(40, 100, 5, loader=1, from_ms=10)], key=lambda b: b.got_ns)
    assert {leading(both[:n], epoch(0, 0), epoch(1, 1)) for n in (60, 70, 80)} == {"train"}


def test_a_loader_whose_epoch_was_left_early_gives_the_lead_back() -> None:
    batches = [*steps(3, 10, 5, loader=1), *steps(40, 100, 5, from_ms=100)]
    assert leading(batches, epoch(0, 0), epoch(1, 1)) == "train"


def test_a_loader_that_has_given_nothing_yet_does_not_lead() -> None:
    assert leading(steps(40, 100, 5), epoch(0, 0), epoch(1, 4050)) == "train"


def test_of_several_ranks_the_one_that_waits_the_most_is_told_and_samples_add_up() -> None:
    ranks = [process_of(steps(60, 100, wait), pid=r, rank=r) for r, wait in enumerate((10, 60))]
    ready = [b._replace(ready=3) for b in ranks[1].batches]
    live = now(ranks[0], replace(ranks[1], batches=tuple(ready)))
    assert live.wait_share == pytest.approx(0.6)
    assert (live.steps_per_s, live.samples_per_s) == (pytest.approx(10), pytest.approx(160))
    assert live.queue_depth == 3
    assert [trainer.rank for trainer in live.trainers] == [0, 1]


def test_a_worker_is_told_by_what_it_has_finished() -> None:
    busy = [work_of(i, i * 100, cpu_ms=20, blocked_ms=60, collate_ms=10) for i in range(50)]
    idle = [work_of(i, i * 1000, cpu_ms=20) for i in range(5)]
    live = now(process_of(steps(50, 100, 80)), worker_of(11, busy), worker_of(12, idle))
    first, second = live.trainers[0].loader.workers
    assert (first.place, first.pid, first.doing, first.since_s) == (0, 11, Doing.FETCH, None)
    assert (first.waits_for, first.busy_share) == (Cause.REMOTE, pytest.approx(0.9, abs=0.02))
    assert first.parts[Cause.CPU] == pytest.approx(0.2, abs=0.01)
    assert first.batches_per_s == pytest.approx(10, abs=0.3)
    assert (second.doing, second.waits_for) == (Doing.WAIT, Cause.CPU)
    parts = live.trainers[0].loader.parts
    assert sum(parts.values()) == pytest.approx(1)
    assert max(parts, key=lambda cause: parts[cause]) is Cause.REMOTE


def test_sending_that_takes_most_of_the_time_is_told() -> None:
    works = [work_of(i, i * 100, cpu_ms=10) for i in range(50)]
    sents = tuple(
        Sent(i, 0, (i * 100 + 10) * MS, (i * 100 + 10) * MS, (i * 100 + 95) * MS, 0) for i in range(50)
    )
    worker = replace(worker_of(11, works), sents=sents)
    (first,) = now(process_of(steps(50, 100, 80)), worker).trainers[0].loader.workers
    assert first.doing is Doing.SEND


@pytest.mark.parametrize(
    ("spent", "cause"),
    [
        ({"cpu_ms": 950.0}, Cause.CPU),
        ({"queued_ms": 900.0}, Cause.CONTENTION),
        ({"storage": 10**12}, Cause.DISK),
        ({}, Cause.REMOTE),
        ({"storage": None}, Cause.UNKNOWN),
    ],
)
def test_a_fetch_that_is_not_over_is_told_by_the_workers_pulse(spent: dict[str, float], cause: Cause) -> None:
    pulses = [
        pulse(
            1000 * i,
            Doing.FETCH,
            cpu_ms=i * spent.get("cpu_ms", 0.0),
            queued_ms=i * spent.get("queued_ms", 0.0),
            storage=None if spent.get("storage", 0) is None else round(i * spent.get("storage", 0)),
        )
        for i in range(1, 6)
    ]
    worker = worker_of(11, [work_of(0, 0, cpu_ms=100)], pulses)
    training = replace(process_of(steps(10, 50, 10)), pulses=(pulse(5000, Doing.WAIT),))
    (first,) = now(training, worker).trainers[0].loader.workers
    assert (first.doing, first.waits_for) == (Doing.FETCH, cause)
    assert first.since_s == pytest.approx(4.9)


def test_a_worker_that_has_had_nothing_to_do_says_since_when() -> None:
    worker = worker_of(11, [work_of(0, 0, cpu_ms=100)], [pulse(1000 * i, Doing.WAIT) for i in range(1, 5)])
    training = replace(process_of(steps(10, 50, 10)), pulses=(pulse(4100, Doing.STEP),))
    (first,) = now(training, worker).trainers[0].loader.workers
    assert (first.doing, first.since_s) == (Doing.WAIT, pytest.approx(4.0))
    assert first.busy_share == pytest.approx(0.1 / 4.1, abs=0.01)


def test_a_worker_of_which_nothing_was_heard_is_not_guessed_at() -> None:
    (first,) = now(process_of(steps(10, 50, 10)), worker_of(12)).trainers[0].loader.workers
    assert (first.place, first.doing, first.waits_for, first.rss_bytes) == (1, None, None, None)


def test_memory_is_summed_as_far_as_it_is_known() -> None:
    training = replace(process_of(steps(10, 50, 10)), pulses=(pulse(500, Doing.STEP, rss=1000, shm=7),))
    workers = [worker_of(11, pulses=[pulse(400, Doing.WAIT, rss=300)]), worker_of(12)]
    memory = now(training, *workers).memory
    assert (memory.main_bytes, memory.workers_bytes) == (1000, 300)
    assert (memory.shm_bytes, memory.shm_total_bytes) == (7, 70)


def test_a_loader_that_was_not_described_is_still_counted() -> None:
    process = replace(process_of(steps(10, 50, 10)), loaders=())
    assert now(process).trainers[0].loader.name == "loader 1"
