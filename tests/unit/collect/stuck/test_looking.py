"""The parts of a look: pages, dumps of stacks, and what the kernel's files say."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from unstarve.collect.stuck import open_files
from unstarve.collect.stuck import state_page as p
from unstarve.collect.stuck.look import frames_of
from unstarve.collect.stuck.stack_dump import free_signal, parse
from unstarve.collect.stuck.state_page import StatePage, read_page, worker_pages
from unstarve.model.stuck import Stage, Task
from unstarve.present.terminal.stuck_text import task_words


def test_a_page_tells_others_what_its_process_does(tmp_path: Path) -> None:
    page = StatePage(tmp_path, worker=2, parent=77)
    page.makes(4, list(range(128, 160)))
    page.words[p.SAMPLE] = 131
    page.tell_loader(0, name="train", pids=[1, 2])
    (seen,) = worker_pages(tmp_path)
    assert (seen.pid, seen.worker, seen.words[p.PARENT], seen.alive) == (os.getpid(), 2, 77, True)
    assert seen.loaders == {0: {"name": "train", "pids": [1, 2]}}
    task = seen.task(seen.words[p.RECEIVED] + 60_000_000_000)
    assert task == Task(Stage.FETCH, 4, 131, tuple(range(128, 160)), 32, 60.0)
    page.remove()
    assert worker_pages(tmp_path) == []


@pytest.mark.parametrize("index", [["a", "b"], [None, None], [1 << 70, 2]])
def test_indices_that_are_no_numbers_are_only_counted(index: list[object]) -> None:
    page = StatePage(None)
    page.makes(0, index)
    assert (page.words[p.COUNT], page.words[p.KNOWN]) == (2, 0)


def test_a_single_index_and_a_long_batch_are_told_as_far_as_they_fit() -> None:
    page = StatePage(None)
    page.makes(0, 7)
    assert (page.words[p.COUNT], page.words[p.KNOWN], page.words[p.INDICES]) == (1, 1, 7)
    page.makes(0, list(range(1000)))
    assert (page.words[p.COUNT], page.words[p.KNOWN]) == (1000, 64)


def test_a_page_that_cannot_be_shared_still_works(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    page = StatePage(tmp_path / "file" / "state")
    page.makes(0, [1])
    page.waits(0, 0, 0, 0)
    assert page.path is None


@pytest.mark.parametrize("data", [b"", b"\0" * 100, b"\0" * (1 << 12), b"\xff" * (1 << 15)])
def test_what_is_no_page_is_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "worker-1.page").write_bytes(data)
    assert read_page(tmp_path / "worker-1.page") is None


def test_a_dump_of_stacks_is_read() -> None:
    text = (
        "Thread 0x00007f10 (most recent call first):\n  <no Python frame>\n\n"
        "Current thread 0x00007f20 (most recent call first):\n"
        '  File "/a b/train.py", line 31 in __getitem__\n'
        '  File "/x/unstarve/tap.py (as importlib._bootstrap)", line 2 in take\n'
        '  File "/a b/train.py", line 40 in <module>\n'
    )
    assert parse(text) == {
        0x7F10: [],
        0x7F20: [
            ("/a b/train.py", 31, "__getitem__"),
            ("/x/unstarve/tap.py", 2, "take"),
            ("/a b/train.py", 40, "<module>"),
        ],
    }


def test_frames_are_the_users_and_the_librarys_with_their_lines(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import time\ntime.sleep(1)\n")
    lines = [
        ("/usr/lib/python3.12/queue.py", 171, "get"),
        (str(script), 2, "load"),
        ("<frozen runpy>", 1, "run"),
    ]
    library, users = frames_of(lines)
    assert (library.file, library.users) == ("queue.py", False)
    assert (users.line, users.function, users.source, users.users) == (2, "load", "time.sleep(1)", True)


@pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="no real-time signals here")
def test_a_signal_that_somebody_uses_is_not_taken(tmp_path: Path) -> None:
    first = signal.SIGRTMAX - 4
    status = tmp_path / "status"
    status.write_text("SigBlk:\t0\nSigIgn:\t0\nSigCgt:\t0\n")
    assert free_signal(status) == first
    status.write_text(f"SigBlk:\t{1 << (first - 1):x}\nSigIgn:\t0\nSigCgt:\t{1 << (first - 2):x}\n")
    assert free_signal(status) == first - 2
    status.write_text(f"SigBlk:\t{(1 << 64) - 1:x}\n")
    assert free_signal(status) == 0


def test_the_holder_of_a_lock_is_found_by_the_file(tmp_path: Path) -> None:
    file = (tmp_path / "a.lock").open("w")
    info = os.fstat(file.fileno())
    place = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}:{info.st_ino}"
    locks = tmp_path / "locks"
    locks.write_text(
        f"1: FLOCK  ADVISORY  WRITE {os.getppid()} {place} 0 EOF\n"
        f"1: -> FLOCK  ADVISORY  WRITE {os.getpid()} {place} 0 EOF\n"
        "2: POSIX  ADVISORY  WRITE 1 00:00:1 0 EOF\n"
    )
    (holder,) = open_files.lock_holders(os.getpid(), file.fileno(), locks)
    assert holder.startswith(f"process {os.getppid()} ")
    file.close()


def test_the_other_end_of_a_pipe_and_of_a_connection_are_found() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    reading, writing = os.pipe()
    try:
        target = open_files.target_of(os.getpid(), client.fileno())
        assert str(target) == f"the socket 127.0.0.1:{server.getsockname()[1]}"
        assert open_files.target_of(os.getpid(), reading).kind == "pipe"
        assert open_files.target_of(os.getpid(), 9999).kind == "descriptor"
    finally:
        for one in (server, client):
            one.close()
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (
            Task(Stage.FETCH, 4, 131, (128, 129, 130, 131), 4, 60.0),
            "fetching sample 131 (4th of 4) of batch 4 for 1:00",
        ),
        (Task(Stage.FETCH, 4, None, (5, 6, 7), 3), "fetching batch 4 (samples 5…7)"),
        (Task(Stage.FETCH, 4, None, (5, 9, 7, 1, 2), 80), "fetching batch 4 (samples 5, 9, 7, 1, …)"),
        (Task(Stage.FETCH, 4, None, (), 8), "fetching batch 4"),
        (Task(Stage.COLLATE, 4, None, (7,), 1), "collating batch 4 (sample 7)"),
        (Task(Stage.SEND, 0, None, (), 2), "sending batch 0"),
        (Task(Stage.START), "starting"),
    ],
)
def test_what_a_process_makes_is_told_in_words(task: Task, words: str) -> None:
    assert task_words(task, with_time=True) == words
