"""What the kernel counts for a thread, and what happens where it does not."""

from __future__ import annotations

import itertools
import os
import threading
import time
from pathlib import Path

import pytest

from thread_switches import switches
from unstarve.collect import counters
from unstarve.collect.counters import CounterReading, PythonCounters, open_counters, own_counters
from unstarve.native import native, why_not_native

needs_proc = pytest.mark.skipif(not Path(counters.SCHEDSTAT).exists(), reason="no /proc here")


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(autouse=True, params=["native", "twin"])
def reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same claims hold for the native reading and for its twin."""
    counters._forget_in_child()  # this thread's may have been opened by another test
    if request.param == "twin":
        monkeypatch.setattr(counters, "Counters", PythonCounters)
    elif native() is None:
        pytest.skip(why_not_native() or "")


def read(own: PythonCounters) -> CounterReading:
    return CounterReading(*own.read())


def spin(cpu_ns: int) -> None:
    until = time.thread_time_ns() + cpu_ns
    while time.thread_time_ns() < until:
        pass


def leave_the_core() -> None:
    time.sleep(0.001)


def test_a_busy_loop_shows_as_cpu_of_this_thread_only() -> None:
    own = open_counters()
    before = read(own)
    spin(20_000_000)
    between = read(own)
    other = threading.Thread(target=spin, args=(200_000_000,))
    other.start()
    other.join()
    after = read(own)
    assert between.cpu_ns - before.cpu_ns >= 10_000_000
    assert after.cpu_ns - between.cpu_ns < 150_000_000
    assert between.wall_ns > before.wall_ns


@needs_proc
def test_a_read_file_shows_as_bytes_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"x" * 1_000_000)
    own = open_counters()
    before = read(own)
    path.read_bytes()
    leave_the_core()
    after = read(own)
    assert before.asked_bytes >= 0
    assert 1_000_000 <= after.asked_bytes - before.asked_bytes < 2_000_000


def test_what_the_machine_does_not_offer_is_none_and_the_rest_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counters, "_open", lambda _path: -1)
    own = open_counters()
    before = read(own)
    spin(1_000_000)
    reading = read(own)
    assert (reading.queued_ns, reading.asked_bytes, reading.storage_bytes, reading.delay_ns) == (-1,) * 4
    assert reading.cpu_ns - before.cpu_ns >= 1_000_000
    assert own.ask(True)[2] == own.got(True)[2] == -1


def test_without_thread_usage_as_on_macos_it_still_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "_RUSAGE_THREAD", None)
    assert read(open_counters()).cpu_ns > 0


@needs_proc
def test_a_thread_that_keeps_its_core_is_not_asked_again(tmp_path: Path) -> None:
    fds = [os.open(tmp_path / name, os.O_RDWR | os.O_CREAT) for name in ("schedstat", "io", "stat")]
    own = counters.Counters(*fds, 1000)

    def count(number: int) -> None:
        texts = (f"5 {number} 7", f"{number} 0 0 0 {number}", f"7 (x) S {' '.join([str(number)] * 50)}")
        for fd, text in zip(fds, texts, strict=True):
            os.pwrite(fd, text.encode(), 0)

    deadline = time.monotonic() + 60
    for number in itertools.count(10**9, 10**9):  # somebody else may take the core at any time
        count(number)
        leave_the_core()
        left = switches()
        first, ask = read(own), own.ask(True)
        count(number + 1)
        spin(100_000)
        got, second = own.got(True), read(own)
        if switches() == left and second.wall_ns - first.wall_ns < 15_000_000:
            break
        assert time.monotonic() < deadline
    leave_the_core()
    third = read(own)
    files = [(r.asked_bytes, r.storage_bytes, r.delay_ns) for r in (first, second, third)]
    assert files == [(n, n, 1000 * n) for n in (number, number, number + 1)]
    assert {first.queued_ns, ask[2], got[2], second.queued_ns} == {number}
    assert third.queued_ns > number
    on_the_clock = second.wall_ns - first.wall_ns
    assert 100_000 <= got[1] - ask[1] <= second.cpu_ns - first.cpu_ns <= on_the_clock + 1_000_000
    assert third.cpu_ns >= second.cpu_ns


@needs_proc
@pytest.mark.parametrize(
    "content", [None, b"", b"no number here, but words, more than ten, of any kind at all"]
)
def test_a_descriptor_that_is_ours_no_more_is_given_up(tmp_path: Path, content: bytes | None) -> None:
    own = open_counters()
    assert own.schedstat >= 0
    assert own.io >= 0
    foreign = tmp_path / "foreign"
    foreign.write_bytes(content or b"")
    taken = [own.schedstat, own.io]
    for fd in taken:
        os.close(fd)
        if content is not None:
            other = os.open(foreign, os.O_RDONLY)
            os.dup2(other, fd)
            if other != fd:
                os.close(other)
    reading = read(own)
    assert (reading.queued_ns, reading.asked_bytes, reading.storage_bytes) == (-1, -1, -1)
    if content is not None:
        own.close()
        for fd in taken:
            os.close(fd)  # still open: it was not ours to close


@needs_proc
def test_an_unreadable_file_is_a_missing_counter(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    assert counters._open(str(tmp_path / "none")) == -1
    assert counters._open(str(empty)) == -1


@needs_proc
def test_threads_that_end_leave_no_descriptors() -> None:
    def work() -> None:
        assert own_counters() is own_counters()

    before = open_descriptors()
    for _ in range(20):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert open_descriptors() <= before + 3


@needs_proc
def test_a_forked_child_counts_for_itself() -> None:
    own_counters()
    spin(300_000_000)
    pid = os.fork()
    if pid == 0:  # in the child nothing may raise into pytest
        fresh = own_counters().ask(True)[1] < 250_000_000
        os._exit(0 if fresh else 1)
    assert os.waitpid(pid, 0)[1] == 0


@needs_proc
def test_the_clock_is_read_on_the_side_of_the_wait() -> None:
    own = open_counters()
    before = time.perf_counter_ns()
    ask, got = own.ask(True), own.got(True)
    assert before <= ask[0] <= got[0] <= time.perf_counter_ns()
    assert 0 < ask[1] <= got[1]
    assert 0 <= ask[2] <= got[2]


def test_block_delay_is_the_forty_second_field_whatever_the_program_is_called(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    fields = [str(number) for number in range(3, 53)]
    stat.write_text(f"7 (a ) 1 2 3) S {' '.join(fields[1:])}\n")
    own = counters.Counters(-1, -1, os.open(stat, os.O_RDONLY), 1000)
    assert read(own).delay_ns == 42_000
    stat.write_text("7 (short) S 1\n")
    leave_the_core()
    assert read(own).delay_ns == -1
    assert own.stat == -1
