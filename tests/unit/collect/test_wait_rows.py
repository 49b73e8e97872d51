"""From readings to rows: what a wait and the making of a batch have cost."""

from __future__ import annotations

import os
import resource
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from thread_switches import switches
from unstarve.collect import counters
from unstarve.collect import wait_rows as waits
from unstarve.collect.counters import PythonCounters
from unstarve.collect.wait_rows import PythonWait, PythonWork
from unstarve.record import format as f
from unstarve.record import writer
from unstarve.record.writer import PythonLedger

pytestmark = pytest.mark.usefixtures("variant")


@pytest.fixture
def ledger() -> PythonLedger:
    return writer.Ledger()


@pytest.fixture
def own(variant: str) -> PythonCounters:
    return counters.open_counters()


def wait_on(ledger: PythonLedger, own: PythonCounters, number: int = 3) -> PythonWait:
    wait = waits.Wait(ledger, f.BATCH, f.letters(f.BATCH))
    wait.number, wait.epoch = number, 5
    wait.use(own, threading.get_ident(), 2)
    return wait


def work_on(ledger: PythonLedger) -> PythonWork:
    work = waits.Work(ledger, f.WORK, f.letters(f.WORK))
    work.loader, work.iteration, work.task = 3, 5, 7
    return work


def rows(ledger: PythonLedger) -> list[dict[str, Any]]:
    found = []
    for kind, packed in ledger.take():
        names = f.ROWS[kind]._fields
        found += [dict(zip(names, row, strict=True)) for row in f.ROW_KINDS[kind].iter_unpack(packed)]
    return found


CLOCKS_DIFFER_NS = 5_000_000
"""By which CPU time may run ahead of the clock on a busy machine: the kernel corrects it in steps."""


def spin(cpu_ns: int = 3_000_000) -> None:
    """Compute for so long. It may be told as less: what a hypervisor took before was told as CPU time."""
    until = time.thread_time_ns() + cpu_ns
    while time.thread_time_ns() < until:
        pass


def one_wait(wait: PythonWait, work: Any = spin, **told: int) -> tuple[int, int]:
    wait.begin(None)
    ask = wait.ask()
    work()
    got = wait.got()
    try:
        wait.record(**{"task": 9, "size": 4, "nbytes": 64, "flags": 0, "block": 0, **told})
    finally:
        wait.done()
    return ask, got


def test_a_wait_and_the_step_before_it_are_told_apart(ledger: PythonLedger, own: PythonCounters) -> None:
    wait = wait_on(ledger, own)
    one_wait(wait, lambda: None)
    spin(6_000_000)
    ask, got = one_wait(wait, flags=f.REPLAY, block=2)
    first, second = rows(ledger)
    assert second == {
        **second,
        "loader": 3,
        "flags": f.REPLAY,
        "epoch": 5,
        "position": 1,
        "thread": 2,
        "size": 4,
        "nbytes": 64,
        "ask_ns": ask,
        "got_ns": got,
        "block": 2,
        "task": 9,
        "ready": -1,
        "sampler_ns": 0,
    }
    assert second["wait_cpu_ns"] >= 1_000_000
    assert second["step_cpu_ns"] >= 2_000_000
    assert first["step_cpu_ns"] == 0
    assert wait.index == 2


def test_unstarves_own_time_is_told_with_the_next_batch(ledger: PythonLedger, own: PythonCounters) -> None:
    wait = wait_on(ledger, own)
    begin = time.perf_counter_ns()
    ask, got = one_wait(wait)
    all_ns = time.perf_counter_ns() - begin
    spent = ledger.own_ns
    assert 0 < spent <= all_ns - (got - ask)
    one_wait(wait)
    assert [row["own_ns"] for row in rows(ledger)] == [0, spent]
    ledger.own_ns = 2**40
    one_wait(wait)
    assert rows(ledger)[0]["own_ns"] == 2**32 - 1


def test_a_wait_inside_another_is_nested_and_its_step_is_the_outer_ones(
    ledger: PythonLedger, own: PythonCounters
) -> None:
    outer, inner = wait_on(ledger, own), wait_on(ledger, own)
    depths = []

    def inside() -> None:
        depths.append((outer.busy, outer.nested, own.depth))
        inner.begin(None)
        depths.append((inner.busy, inner.nested, own.depth))
        inner.ask(), inner.got()
        spin()

    one_wait(outer, inside)
    assert depths == [(True, False, 1), (True, True, 2)]
    assert (outer.busy, inner.busy, own.depth) == (False, False, 0)


def test_a_wait_that_brings_no_batch_leaves_no_row(ledger: PythonLedger, own: PythonCounters) -> None:
    wait = wait_on(ledger, own)
    wait.begin(None)
    ask = wait.ask()
    assert ask <= wait.leave() <= time.perf_counter_ns()
    assert (wait.busy, own.depth, wait.index, rows(ledger)) == (False, 0, 0, [])


def test_the_samplers_time_is_that_of_this_wait(ledger: PythonLedger, own: PythonCounters) -> None:
    wait = wait_on(ledger, own)
    one_wait(wait, lambda: wait.sampled(time.perf_counter_ns() - 5_000))
    one_wait(wait, lambda: None)
    first, second = rows(ledger)
    assert first["sampler_ns"] >= 5_000
    assert second["sampler_ns"] == 0


@pytest.mark.parametrize(("room", "ready"), [(0, 6), (10, 6)])
def test_batches_that_lie_ready_are_in_the_queue_or_held_back(
    ledger: PythonLedger, own: PythonCounters, room: int, ready: int
) -> None:
    wait = wait_on(ledger, own)
    wait.queue_value, wait.queue_room = (lambda: 10 - 4 if room else 4), room
    wait.begin(SimpleNamespace(_task_info={0: (), 1: (), 2: ()}, _tasks_outstanding=1))
    wait.ask(), wait.got()
    wait.record(0, 0, 0, 0, 0)
    assert rows(ledger)[0]["ready"] == ready


def test_a_batch_is_known_by_its_number(ledger: PythonLedger, own: PythonCounters) -> None:
    wait = wait_on(ledger, own)
    source = SimpleNamespace(_rcvd_idx=8)
    assert wait.task(source) == -1
    wait.has_workers = wait.in_order = True
    wait.queue_value = None
    assert wait.task(source) == 7
    wait.in_order, wait.last_task = False, 4
    assert wait.task(source) == 4
    wait.in_order = True
    with pytest.raises(AttributeError, match="_rcvd_idx"):
        wait.task(object())


def test_where_the_thread_fetches_by_itself_the_fetch_is_what_counts(
    ledger: PythonLedger, own: PythonCounters
) -> None:
    wait, work = wait_on(ledger, own), work_on(ledger)
    wait.fetch_by(work)
    wait.index = 6

    def fetch() -> None:
        assert work.task == 6
        spin(30_000_000)
        work.begin(own, False)
        spin()
        work.done(own)

    one_wait(wait, fetch)
    one_wait(wait, lambda: None)
    fetched, not_fetched = rows(ledger)
    assert 1_000_000 <= fetched["wait_cpu_ns"] < 30_000_000
    assert (not_fetched["wait_cpu_ns"], not_fetched["wait_queued_ns"]) == (0, -1)
    assert wait.task(None) == 8


def test_fetching_and_collating_are_told_apart(ledger: PythonLedger, own: PythonCounters) -> None:
    work = work_on(ledger)
    work.received_ns = 17
    work.begin(own, False)
    spin(30_000_000)
    work.collate(own)
    spin(2_000_000)
    done = work.done(own)
    work.slow_ns = 12
    work.record(f.FAILED, 8, 11, 1)
    (row,) = rows(ledger)
    told = {name: row[name] for name in ("loader", "flags", "iteration", "task", "samples", "received_ns")}
    assert told == {
        "loader": 3,
        "flags": f.FAILED,
        "iteration": 5,
        "task": 7,
        "samples": 8,
        "received_ns": 17,
    }
    assert row["begin_ns"] <= row["collate_ns"] <= row["done_ns"] == done
    assert (row["slow_index"], row["slow_ns"], row["opens"]) == (11, 12, 1)
    assert row["cpu_ns"] >= 20_000_000
    assert 500_000 <= row["collate_cpu_ns"] < 20_000_000
    assert row["queued_ns"] >= 0


def test_a_fetch_that_never_collates_is_all_fetch(ledger: PythonLedger, own: PythonCounters) -> None:
    work = work_on(ledger)
    work.begin(own, True)
    spin(6_000_000)
    work.done(own)
    work.record(0, 8, -1, 0)
    (row,) = rows(ledger)
    assert row["collate_ns"] == row["done_ns"]
    assert row["collate_cpu_ns"] == 0
    assert row["cpu_ns"] >= 1_000_000
    assert row["received_ns"] == row["begin_ns"]


def test_a_short_collate_behind_a_short_one_is_timed_and_taken_for_cpu(
    ledger: PythonLedger, own: PythonCounters
) -> None:
    work = work_on(ledger)
    for collate_ns in (0, 0, 8_000_000, 8_000_000):
        work.begin(own, True)
        work.collate(own)
        if collate_ns:
            spin(collate_ns)
        work.done(own)
        work.record(0, 8, -1, 0)
    found = rows(ledger)
    # Measured after all if the one before was interrupted: the two clocks differ a little.
    for short in found[1:3]:
        assert 0 <= short["collate_cpu_ns"] <= short["done_ns"] - short["collate_ns"] + CLOCKS_DIFFER_NS
        assert short["cpu_ns"] >= 0
    assert all(row["collate_cpu_ns"] >= 2_000_000 for row in found[2:])


@pytest.mark.skipif(not hasattr(resource, "RUSAGE_THREAD"), reason="switches of a thread are not told here")
@pytest.mark.parametrize(("in_worker", "told"), [(True, [0, 1]), (False, [0, 0])])
def test_a_worker_reads_no_files_between_two_batches_a_training_process_may(
    ledger: PythonLedger, tmp_path: Path, in_worker: bool, told: list[int]
) -> None:
    io = os.open(tmp_path / "io", os.O_RDWR | os.O_CREAT)
    own = counters.Counters(-1, io, -1, 1000)
    work = work_on(ledger)

    def fetch(seconds: float) -> None:
        work.begin(own, in_worker)
        if seconds:
            time.sleep(seconds)
        work.done(own)
        work.record(0, 8, -1, 0)

    deadline = time.monotonic() + 60
    while True:  # somebody else may take the core at any time
        os.pwrite(io, b"11 0 0 0 11", 0)
        fetch(0.001)
        os.pwrite(io, b"12 0 0 0 12", 0)
        time.sleep(0.001)
        left = switches()
        fetch(0)
        if switches() == left:
            break
        assert time.monotonic() < deadline
    fetch(0.001)
    assert [row["asked_bytes"] for row in rows(ledger)][-2:] == told


def test_a_number_that_does_not_fit_is_an_error_and_costs_one_row(
    ledger: PythonLedger, own: PythonCounters
) -> None:
    wait = wait_on(ledger, own)
    one_wait(wait)
    with pytest.raises(ValueError, match="does not fit its field"):
        one_wait(wait, size=2**31)
    with pytest.raises(ValueError, match="does not fit its field"):
        one_wait(wait, flags=-1)
    one_wait(wait)
    assert [row["position"] for row in rows(ledger)] == [0, 3]
    work = work_on(ledger)
    work.begin(own, True), work.done(own)
    with pytest.raises(ValueError, match="does not fit its field"):
        work.record(0, -1, 0, 0)
    assert rows(ledger) == []


def test_without_counters_what_is_not_known_says_so(ledger: PythonLedger) -> None:
    wait = wait_on(ledger, counters.Counters(-1, -1, -1, 1))
    one_wait(wait, lambda: (spin(), time.sleep(0.001)))
    (row,) = rows(ledger)
    assert row["wait_queued_ns"] == -1
    assert row["wait_cpu_ns"] >= 1_000_000


@pytest.mark.skipif(not hasattr(resource, "RUSAGE_THREAD"), reason="switches of a thread are not told here")
def test_where_batches_are_made_elsewhere_time_in_line_is_asked_for_around_steps_that_wait(
    ledger: PythonLedger, tmp_path: Path
) -> None:
    schedstat = os.open(tmp_path / "schedstat", os.O_RDWR | os.O_CREAT)
    os.pwrite(schedstat, b"5 1000000000 7", 0)
    wait = wait_on(ledger, counters.Counters(schedstat, -1, -1, 1000))
    wait.seen_inside = True
    deadline = time.monotonic() + 60
    while True:  # another thread of these tests may keep this one waiting at any time
        one_wait(wait, lambda: time.sleep(0.0001))
        (row,) = rows(ledger)
        if row["wait_queued_ns"] == -1 and row["step_queued_ns"] >= 0:
            break
        assert time.monotonic() < deadline
    os.pwrite(schedstat, b"5 2000000000 7", 0)
    time.sleep(0.001)
    one_wait(wait, lambda: time.sleep(0.001))
    os.pwrite(schedstat, b"5 3000000000 7", 0)
    time.sleep(0.001)
    one_wait(wait, lambda: None)
    first, second = rows(ledger)
    assert (first["wait_queued_ns"], first["step_queued_ns"]) == (-1, -1)  # what it was before is not known
    assert second["step_queued_ns"] == 1_000_000_000


@pytest.mark.skipif(not hasattr(resource, "RUSAGE_THREAD"), reason="switches of a thread are not told here")
def test_a_step_that_waits_for_nothing_is_in_line_while_it_is_off_the_cpu(ledger: PythonLedger) -> None:
    wait = wait_on(ledger, counters.Counters(-1, -1, -1, 1))  # no other counter is needed
    deadline = time.monotonic() + 60
    while True:  # somebody else may take the core at any time
        left = switches()
        one_wait(wait, lambda: None)
        spin(1_000_000)
        one_wait(wait, lambda: None)
        if switches() == left:
            break
        rows(ledger)
        assert time.monotonic() < deadline
    *_, row = rows(ledger)
    assert row["step_queued_ns"] >= 0


def test_rows_are_given_out_by_kind_once(ledger: PythonLedger) -> None:
    for row in (b"one", b"two"):
        ledger.append(f.BATCH, row)
    ledger.append(f.EPOCH_END, b"end")
    assert ledger.take() == [(f.BATCH, b"onetwo"), (f.EPOCH_END, b"end")]
    assert ledger.take() == []
