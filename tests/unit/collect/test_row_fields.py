"""The compiled hot paths and their Python twins write every value where `record.format` declares it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from unstarve.collect import counters, receiving
from unstarve.collect import wait_rows as waits
from unstarve.record import format as f
from unstarve.record import writer
from unstarve.record.events import unpacked

pytestmark = pytest.mark.usefixtures("variant")

TICK_NS = 1000


class FakeProc:
    """The files that counters are read from, with numbers of our choice."""

    def __init__(self, folder: Path) -> None:
        self._files = [os.open(folder / name, os.O_RDWR | os.O_CREAT) for name in ("schedstat", "io", "stat")]
        self.tell()
        self.counters = counters.Counters(*self._files, TICK_NS)

    def tell(self, *, queued_ns: int = 0, asked: int = 0, storage: int = 0, delay_ticks: int = 0) -> None:
        """From the next reading on; a thread that has slept reads anew."""
        contents = (f"5 {queued_ns} 7", f"{asked} 1 1 1 {storage}", f"1 (x) S {'1 ' * 38}{delay_ticks} 1 1")
        for file, content in zip(self._files, contents, strict=True):
            os.pwrite(file, f"{content}\n".encode().ljust(200), 0)
        time.sleep(0.001)


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


@pytest.fixture
def ledger() -> Any:
    return writer.Ledger()


def rows(ledger: Any) -> list[Any]:
    return [row for kind, packed in ledger.take() for row in unpacked(kind, [(layout_size(kind), packed)])]


def layout_size(kind: int) -> int:
    return f.ROW_KINDS[kind].size


def compute(cpu_ns: int) -> None:
    """In Python's own code: no system time."""
    until = time.thread_time_ns() + cpu_ns
    while time.thread_time_ns() < until:
        sum(range(20_000))


def test_a_wait_writes_a_batch_row_as_declared(ledger: Any, proc: FakeProc) -> None:
    wait = waits.Wait(ledger, f.BATCH, f.letters(f.BATCH))
    wait.use(proc.counters, threading.get_ident(), 41)
    wait.number, wait.epoch, wait.index = 42, 43, 54
    source = SimpleNamespace(_task_info={}, _tasks_outstanding=0)
    wait.queue_value = lambda: 45
    for number in range(2):  # the step before the second wait is known
        wait.begin(source)
        ask_ns = wait.ask()
        proc.tell(queued_ns=(number + 1) * 10**12 + 46 * number)
        compute(4_000_000)
        wait.sampler_ns = 47
        got_ns = wait.got()
        ledger.own_ns = 48
        wait.record(task=49, size=50, nbytes=51, flags=f.REPLAY | f.NESTED, block=52)
        wait.done()
        proc.tell(queued_ns=(number + 1) * 10**12 + 46 * number + 53)
        compute(60_000_000)
    _, row = rows(ledger)
    expected = row._replace(
        loader=42,
        flags=f.REPLAY | f.NESTED,
        epoch=43,
        position=55,  # the second
        thread=41,
        size=50,
        nbytes=51,
        ask_ns=ask_ns,
        got_ns=got_ns,
        own_ns=48,
        block=52,
        task=49,
        ready=45,
        sampler_ns=47,
        wait_queued_ns=10**12 + 46 - 53,
        step_queued_ns=53,
    )
    assert row == expected
    assert 1_000_000 <= row.wait_cpu_ns < 30_000_000 <= row.step_cpu_ns


def test_making_a_batch_writes_a_work_row_as_declared(ledger: Any, proc: FakeProc) -> None:
    work = waits.Work(ledger, f.WORK, f.letters(f.WORK))
    work.loader, work.iteration, work.task, work.received_ns = 41, 42, 43, 44
    work.begin(proc.counters, False)
    for _ in range(9):
        time.sleep(0.0001)
    compute(60_000_000)
    proc.tell(queued_ns=45)
    work.collate(proc.counters)
    compute(4_000_000)
    proc.tell(queued_ns=45 + 46, asked=47, storage=48, delay_ticks=49)
    done_ns = work.done(proc.counters)
    work.slow_ns = 50
    work.record(f.FAILED, 51, 52, 53)
    (row,) = rows(ledger)
    expected = row._replace(
        loader=41,
        flags=f.FAILED,
        iteration=42,
        task=43,
        samples=51,
        received_ns=44,
        done_ns=done_ns,
        queued_ns=45,
        asked_bytes=47,
        storage_bytes=48,
        delay_ns=49 * TICK_NS,
        collate_queued_ns=46,
        slow_index=52,
        slow_ns=50,
        opens=53,
    )
    assert row == expected
    assert row.received_ns < row.begin_ns < row.collate_ns < row.done_ns
    assert row.collate_ns - row.begin_ns >= row.cpu_ns >= 30_000_000 > row.collate_cpu_ns >= 1_000_000
    assert 0 <= row.system_ns < row.cpu_ns
    assert 0 <= row.collate_system_ns < row.collate_cpu_ns
    assert 0 <= row.major_faults < 9 <= row.switches < 1_000_000


def test_a_batch_out_of_the_queue_writes_a_received_row_as_declared(ledger: Any) -> None:
    queue = SimpleNamespace()
    received = receiving.Receiving(
        ledger,
        f.RECEIVED,
        f.letters(f.RECEIVED),
        lambda: queue,
        lambda queue, block, timeout: (received.receive(), time.sleep(0.001), (43, "batch"))[-1],
        lambda: b"message",
        None,
    )
    received.loader, received.epoch = 41, 42
    begin_ns = time.perf_counter_ns()
    assert received.get(True, None) == (43, "batch")
    (row,) = rows(ledger)
    assert row == row._replace(loader=41, flags=0, epoch=42, task=43)
    assert begin_ns <= row.arrived_ns < row.ready_ns == row.pinned_ns


def test_a_field_may_be_read_alone_from_longer_rows() -> None:
    longer = f.ROW_KINDS[f.STALL].pack(*range(9)) + b"later"
    found = f.columns(f.STALL, len(longer), "epoch", "stall_ns").iter_unpack(2 * longer)
    assert list(found) == [(2, 8), (2, 8)]
