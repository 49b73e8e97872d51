"""What the kernel counts for a thread, and what happens where it does not."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from unstarve.collect import counters
from unstarve.collect.counters import Counters, own_counters
from unstarve.native import native, why_not_native

needs_proc = pytest.mark.skipif(not Path(counters.SCHEDSTAT).exists(), reason="no /proc here")


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(autouse=True, params=["native", "twin"])
def reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same claims hold for the native reading and for its twin."""
    if request.param == "twin":
        monkeypatch.setattr(counters, "_read_counters", counters._python_counters)
        monkeypatch.setattr(counters, "_read_quick", counters._python_quick)
    elif native() is None:
        pytest.skip(why_not_native() or "")


def spin(cpu_ns: int) -> None:
    until = time.thread_time_ns() + cpu_ns
    while time.thread_time_ns() < until:
        pass


def test_a_busy_loop_shows_as_cpu_of_this_thread_only() -> None:
    own = Counters()
    before = own.read()
    spin(20_000_000)
    between = own.read()
    other = threading.Thread(target=spin, args=(20_000_000,))
    other.start()
    other.join()
    after = own.read()
    assert between.cpu_ns - before.cpu_ns >= 20_000_000
    assert after.cpu_ns - between.cpu_ns < 15_000_000
    assert between.wall_ns > before.wall_ns


@needs_proc
def test_a_read_file_shows_as_bytes_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"x" * 1_000_000)
    own = Counters()
    before = own.read()
    path.read_bytes()
    after = own.read()
    assert before.asked_bytes is not None
    assert after.asked_bytes is not None
    assert 1_000_000 <= after.asked_bytes - before.asked_bytes < 1_010_000


def test_what_the_machine_does_not_offer_is_none_and_the_rest_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counters, "_open", lambda _path: -1)
    own = Counters()
    before = own.read()
    spin(1_000_000)
    reading = own.read()
    assert (reading.queued_ns, reading.asked_bytes, reading.storage_bytes, reading.delay_ns) == (None,) * 4
    assert reading.cpu_ns - before.cpu_ns >= 1_000_000
    assert own.quick()[1] == -1


def test_without_thread_usage_as_on_macos_it_still_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "_RUSAGE_THREAD", None)
    assert Counters().read().cpu_ns > 0


@needs_proc
@pytest.mark.parametrize(
    "content", [None, b"", b"no number here, but words, more than ten, of any kind at all"]
)
def test_a_descriptor_that_is_ours_no_more_is_given_up(tmp_path: Path, content: bytes | None) -> None:
    own = Counters()
    assert own._schedstat >= 0
    assert own._io >= 0
    foreign = tmp_path / "foreign"
    foreign.write_bytes(content or b"")
    taken = [own._schedstat, own._io]
    for fd in taken:
        os.close(fd)
        if content is not None:
            other = os.open(foreign, os.O_RDONLY)
            os.dup2(other, fd)
            if other != fd:
                os.close(other)
    reading = own.read()
    assert (reading.queued_ns, reading.asked_bytes, reading.storage_bytes) == (None, None, None)
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
    spin(30_000_000)
    pid = os.fork()
    if pid == 0:  # in the child nothing may raise into pytest
        fresh = own_counters().quick()[0] < 20_000_000
        os._exit(0 if fresh else 1)
    assert os.waitpid(pid, 0)[1] == 0
