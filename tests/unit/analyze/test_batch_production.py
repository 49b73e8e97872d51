"""Which work belongs to which batch."""

from __future__ import annotations

from dataclasses import replace

from fake_work import MS, work_of
from fakes import FakeTraining
from unstarve.analyze.batch_production import productions, workers_of
from unstarve.model import Crew, Epoch, Process, Received, Sent, Work


def trainer(*crews: Crew, receipts: tuple[Received, ...] = (), works: tuple[Work, ...] = ()) -> Process:
    """A training process whose epochs last a second each."""
    epochs = tuple(
        Epoch(
            c.loader,
            c.epoch,
            c.epoch * 1000 * MS,
            c.epoch * 1000 * MS,
            0,
            False,
            None,
            (c.epoch + 1) * 1000 * MS,
        )
        for c in crews
    )
    return replace(FakeTraining().process(), epochs=epochs, crews=crews, receipts=receipts, works=works)


def worker(pid: int, *works: Work, start_ms: int = 0, host: str = "here") -> Process:
    sents = tuple(Sent(w.task, w.iteration, w.done_ns, w.done_ns, w.done_ns + MS, MS) for w in works)
    return replace(
        FakeTraining().process(),
        pid=pid,
        worker=True,
        host=host,
        start_ns=start_ms * MS,
        works=works,
        sents=sents,
    )


def test_each_worker_of_a_crew_brings_what_it_made_and_sent() -> None:
    receipt = Received(0, 0, 1, 5, 6, 7)
    process = trainer(Crew(0, 0, (11, 12)), receipts=(receipt,))
    crew = [worker(12, work_of(1, 0), work_of(3, 20)), worker(11, work_of(0, 0), work_of(2, 20))]
    made = productions(process, workers_of([process, *crew]))[0, 0]
    assert made.workers == 2
    assert {task: one.worker for task, one in made.by_task.items()} == {0: 0, 1: 1, 2: 0, 3: 1}
    assert [one.work.task for one in made.by_worker[1]] == [1, 3]
    assert made.by_task[1].received == receipt
    assert made.by_task[2].received is None
    assert made.by_task[2].sent is not None
    assert made.by_task[2].sent.task == 2


def test_workers_that_are_hardly_ever_idle_set_the_pace() -> None:
    process = trainer(Crew(0, 0, (11, 12, 13)))
    busy = worker(11, *(work_of(task, 10 * task, cpu_ms=6, collate_ms=2) for task in range(6)))
    lazy = worker(12, *(work_of(task, 10 * task, cpu_ms=6) for task in range(6, 12)))
    new = worker(13, work_of(12, 0, cpu_ms=9), work_of(13, 10, cpu_ms=9))
    made = productions(process, workers_of([process, busy, lazy, new]))[0, 0]
    assert made.pacing == {0}


def test_persistent_workers_are_told_apart_by_how_often_they_started_over() -> None:
    process = trainer(Crew(0, 0, (11,)), Crew(0, 1, (11,)))
    again = work_of(0, 1000, iteration=1, cpu_ms=5)
    made = productions(process, workers_of([process, worker(11, work_of(0, 0), again)]))
    assert made[0, 0].by_task[0].work.iteration == 0
    assert made[0, 1].by_task[0].work is again
    assert made[0, 1].by_task[0].sent is not None
    assert made[0, 1].by_task[0].sent.iteration == 1


def test_a_pid_that_is_used_again_is_the_youngest_worker_of_its_time() -> None:
    process = trainer(Crew(0, 0, (11,)), Crew(0, 1, (11,)))
    first, second = worker(11, work_of(0, 0)), worker(11, work_of(0, 1000), start_ms=1000)
    made = productions(process, workers_of([process, second, first]))
    assert made[0, 0].by_task[0].work is first.works[0]
    assert made[0, 1].by_task[0].work is second.works[0]


def test_workers_of_another_machine_with_the_same_pid_are_not_mixed_in() -> None:
    process = trainer(Crew(0, 0, (11,)))
    made = productions(process, workers_of([process, worker(11, work_of(0, 0), host="there")]))
    assert made[0, 0].by_task == {}
    assert made[0, 0].workers == 1


def test_work_that_failed_made_no_batch() -> None:
    process = trainer(Crew(0, 0, (11,)))
    made = productions(process, workers_of([process, worker(11, work_of(0, 0), work_of(1, 10, failed=True))]))
    assert list(made[0, 0].by_task) == [0]


def test_several_loaders_at_once_keep_their_workers_apart() -> None:
    process = trainer(Crew(0, 0, (11,)), Crew(1, 0, (12,)))
    made = productions(process, workers_of([process, worker(11, work_of(0, 0)), worker(12, work_of(0, 5))]))
    assert made[0, 0].by_task[0].work.begin_ns == 0
    assert made[1, 0].by_task[0].work.begin_ns == 5 * MS


def test_without_workers_the_training_process_made_them_itself() -> None:
    works = (work_of(0, 0, loader=0), work_of(1, 10, loader=0), work_of(0, 20, loader=0, iteration=1))
    made = productions(trainer(works=works), workers_of([]))
    assert {key: (one.workers, list(one.by_task)) for key, one in made.items()} == {
        (0, 0): (0, [0, 1]),
        (0, 1): (0, [0]),
    }


def test_a_loader_whose_workers_left_nothing_has_an_empty_production() -> None:
    process = trainer(Crew(0, 0, (11, 12)))
    made = productions(process, workers_of([process]))
    assert made[0, 0].by_worker == ((), ())
