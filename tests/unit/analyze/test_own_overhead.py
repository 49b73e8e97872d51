"""unstarve's own cost: CPU time, the training process and its workers apart."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fake_work import MS, work_of
from fakes import FakeTraining, run_of
from run_files import slow_loading_run, write_run
from unstarve.analyze.diagnose import analyze_run
from unstarve.model import Overhead, OwnCost, Process, Run
from unstarve.present.own_cost import own_cost
from unstarve.record.run_reader import read_run


def training(steps: int = 100, own_ns: Any = lambda _: 5000) -> Process:
    played = FakeTraining()
    played.begin("train")
    for _ in range(steps):
        played.take(0.01, "train")
        played.spend(0.01)
    played.end("train")
    process = played.process()
    batches = tuple(b._replace(own_ns=own_ns(b.position)) for b in process.batches)
    return dataclasses.replace(process, batches=batches)


def overhead(*processes: Process) -> Overhead:
    return analyze_run(run_of(*processes)).overhead


def test_measured_steps_stand_for_all_and_the_rest_is_added() -> None:
    told = overhead(dataclasses.replace(training(), own=OwnCost(10, 200e-6, 0, 0.0, 100e-6)))
    assert told.us_per_step == pytest.approx(20 + 1)
    assert told.share == pytest.approx(21e-6 / 0.02, rel=0.02)
    assert told.worker_us_per_batch is told.worker_share is None


def test_a_training_process_that_makes_its_batches_pays_for_that_too() -> None:
    works = tuple(work_of(task, 20.0 * task, cpu_ms=1, loader=0) for task in range(100))
    own = OwnCost(10, 200e-6, 5, 150e-6, 0.0)
    told = overhead(dataclasses.replace(training(), own=own, works=works))
    assert told.us_per_step == pytest.approx(20 + 30)


def test_workers_are_told_apart_from_the_training_process() -> None:
    run = slow_loading_run(60, workers=2)
    main, *workers = run.processes
    main = dataclasses.replace(main, own=OwnCost(10, 100e-6, 0, 0.0, 0.0))
    made = [dataclasses.replace(w, own=OwnCost(0, 0.0, 3, 90e-6, 60e-6)) for w in workers]
    told = overhead(main, *made)
    assert told.us_per_step == pytest.approx(10)
    assert told.worker_us_per_batch == pytest.approx(30 + 2 * 60 / 60)
    span_s = sum(w.works[-1].done_ns - w.works[0].received_ns for w in workers) / 1e9
    assert told.worker_share == pytest.approx(60 * 32e-6 / span_s)


def test_a_step_off_the_core_does_not_count_in_an_older_run() -> None:
    told = overhead(training(own_ns=lambda position: 5 * MS if position % 4 == 0 else 6000))
    assert told.us_per_step == pytest.approx(6.0)


def test_what_was_not_measured_is_unknown() -> None:
    assert overhead(dataclasses.replace(training(), own=OwnCost(0, 0.0, 0, 0.0, 1.0))) == Overhead(None, None)


def test_a_run_file_without_it_opens(tmp_path: Any) -> None:
    run: Run = read_run(write_run(tmp_path / "old.unstarve", slow_loading_run(20)))
    assert [process.own for process in run.processes] == [None, None]
    assert analyze_run(run).overhead.worker_us_per_batch is None


def test_the_line_fits_the_screen() -> None:
    line = own_cost(Overhead(20.6, 0.0074, 29.3, 0.01))
    assert line == "unstarve used 0.74% of a core (20.6 µs a step) and 29.3 µs a batch in workers"
    assert len(line) <= 80
    assert own_cost(Overhead(20.6, 0.0074)) == "unstarve used 0.74% of a core (20.6 µs a step)"
    assert own_cost(Overhead(None, None)) is None
