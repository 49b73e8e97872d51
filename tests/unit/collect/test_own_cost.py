"""What recording costs is measured in CPU time, without the user's part, and changes nothing."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import unstarve
from tapped import Recording, take, warm_up
from unstarve.collect import own_cost
from unstarve.collect.own_cost import OwnCost
from unstarve.launch.hooks import detach
from unstarve.model.recorded import OwnCost as Recorded
from unstarve.record.run_reader import read_run


class Clock:
    """The CPU clock of a thread that only computes when it is told to."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns

    def compute(self, ns: int) -> int:
        self.now_ns += ns
        return ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(own_cost, "_cpu_ns", clock)
    return clock


def test_neither_the_users_code_nor_writing_is_part_of_a_step(clock: Clock) -> None:
    own = OwnCost()

    def record(advance: Any) -> str:
        clock.compute(10)
        advance("source")
        own.written_ns += clock.compute(500)
        clock.compute(7)
        return "batch"

    assert own.apart(record, lambda source: clock.compute(10_000)) == ("batch", 17)


def test_an_exception_of_the_loader_comes_through(clock: Clock) -> None:
    def ended() -> None:
        raise StopIteration

    with pytest.raises(StopIteration):
        OwnCost().apart(lambda advance: advance(), ended)


def test_the_step_after_a_write_is_measured_and_only_that(recording: Recording, variant: str) -> None:
    tap = recording.tap()
    warm_up(tap)
    recording.owner.writer.ledger.next_flush_ns = 2**62
    own = recording.owner.own_cost
    own.steps = own.step_ns = 0
    usual = tap.next_batch = tap._unmeasured
    batch = [torch.zeros(4, 2)]
    for measured in (0, 1, 1):
        assert take(tap, lambda _source: batch) is batch
        assert own.steps == measured
        if not measured:
            tap.flush(time.perf_counter_ns())
            recording.owner.writer.ledger.next_flush_ns = 2**62
            assert tap.next_batch is not usual
    assert own.step_ns > 0
    assert tap.next_batch is usual
    process = recording.end()
    assert [b.position for b in process.batches] == list(range(len(process.batches)))
    assert process.own is not None
    assert process.own.steps == 1
    assert process.own.step_cpu_s == own.step_ns / 1e9


def test_the_first_steps_are_not_measured(recording: Recording) -> None:
    tap = recording.tap()
    for _ in range(3):
        take(tap, lambda _source: torch.zeros(4))
        tap.flush(time.perf_counter_ns())
    assert recording.owner.own_cost.steps == 0


class Squares(Dataset[int]):
    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> int:
        return index * index


@pytest.mark.parametrize("workers", [0, 2])
def test_training_process_and_workers_tell_their_cost(workers: int, tmp_path: Any) -> None:
    path = tmp_path / "a.unstarve"
    try:
        with unstarve.recording(path) as recorded:
            loader = DataLoader(Squares(), batch_size=4, num_workers=workers)
            numbers = [int(x) for batch in loader for x in batch]
    finally:
        detach()
    assert numbers == [x * x for x in range(400)]
    run = read_run(path)
    (main,) = [p for p in run.processes if not p.worker]
    makers = [main] if not workers else [p for p in run.processes if p.worker]
    assert main.own is not None
    assert main.own.steps > 0
    assert main.own.step_cpu_s > 0
    for maker in makers:
        assert maker.own is not None
        assert maker.own.fetches > 0
        assert maker.own.fetch_cpu_s > 0
    told = recorded.diagnosis.overhead
    assert told.us_per_step is not None
    assert (told.worker_us_per_batch is None) is (workers == 0)
    assert (told.worker_share is None) is (workers == 0)


def test_the_fields_in_the_file_are_those_of_the_model() -> None:
    assert tuple(OwnCost().fields()) == Recorded._fields
