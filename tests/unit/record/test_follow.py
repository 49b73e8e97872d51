"""A run that is being written is read bit by bit, and never half."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from sample_rows import BATCH
from unstarve.errors import NotARunError, RunFileError
from unstarve.model import Doing, Tail
from unstarve.record import chunks, follow
from unstarve.record import format as f
from unstarve.record.chunks import Scan
from unstarve.record.follow import Follower, newest_running
from unstarve.record.run_file import claim, discard, finish, parts_folder
from unstarve.record.writer import Writer, meta_chunk


def process_meta(**more: Any) -> dict[str, Any]:
    who: dict[str, Any] = {"pid": os.getpid(), "host": socket.gethostname(), "rank": None, "worker": False}
    return who | {"versions": {}, "start_ns": 1, "offset_ns": 2} | more


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "a.unstarve"
    claim(path, ["train.py"], "run")
    return path


def writer_of(run: Path, name: str = "p.part", **who: Any) -> Writer:
    writer = Writer(parts_folder(run) / name)
    writer.meta("process", **process_meta(**who))
    return writer


def deliver(writer: Writer, first: int, last: int, loader: int = 0, flags: int = 0) -> None:
    for step in range(first, last):
        at = step * 10_000_000
        row = BATCH._replace(loader=loader, flags=flags, position=step, ask_ns=at, got_ns=at + 5)
        writer.row(f.BATCH, at, row)
    writer.flush(0)


def positions(tail: Tail) -> list[int]:
    return [batch.position for process in tail.run.processes for batch in process.batches]


def test_only_new_bytes_are_read_and_nothing_is_lost(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = writer_of(run)
    follower = Follower(run)
    assert positions(follower.read()) == []
    deliver(writer, 0, 3)
    assert positions(follower.read()) == [0, 1, 2]
    read: list[int] = []
    monkeypatch.setattr(chunks, "Scan", lambda data, version: read.append(len(data)) or Scan(data, version))
    assert positions(follower.read()) == [0, 1, 2]
    assert read == []
    deliver(writer, 3, 5)
    assert positions(follower.read()) == [0, 1, 2, 3, 4]
    assert read == [f.CHUNK.size + 2 * f.ROW_KINDS[f.BATCH].size]
    writer.close()


def test_a_half_written_chunk_is_read_once_it_is_whole(run: Path) -> None:
    writer = writer_of(run)
    deliver(writer, 0, 1)
    part = parts_folder(run) / "p.part"
    whole = part.stat().st_size
    deliver(writer, 1, 2)
    writer.close()
    data = part.read_bytes()
    follower = Follower(run)
    for cut in (whole + 3, whole + f.CHUNK.size, len(data) - 1):
        part.write_bytes(data[:cut])
        assert positions(follower.read()) == [0]
    part.write_bytes(data)
    assert positions(follower.read()) == [0, 1]


def test_damage_is_skipped_once_a_whole_chunk_follows(run: Path) -> None:
    writer = writer_of(run)
    follower = Follower(run)
    follower.read()
    part = parts_folder(run) / "p.part"
    before = part.stat().st_size
    deliver(writer, 0, 1)
    data = bytearray(part.read_bytes())
    data[before + f.CHUNK.size + 3] ^= 0xFF
    part.write_bytes(data)
    assert positions(follower.read()) == []
    deliver(writer, 1, 2)
    writer.close()
    assert positions(follower.read()) == [1]


def test_the_newest_rows_are_kept_and_all_are_counted(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_READ_BYTES", 4096)  # many bites, some smaller than a chunk
    writer = writer_of(run)
    for first in range(0, 2000, 100):
        deliver(writer, first, first + 100)
    deliver(writer, 2000, 2007, loader=1)
    deliver(writer, 2007, 2012, loader=1, flags=f.NESTED)
    tail = Follower(run).read()
    assert tail.delivered[socket.gethostname(), os.getpid()] == {0: 2000, 1: 7}
    assert len(positions(tail)) == follow._MOST_ROWS
    assert positions(tail)[:-12] == list(range(2000 - (follow._MOST_ROWS - 12), 2000))
    writer.close()


def test_a_process_that_starts_later_is_found(run: Path) -> None:
    writer = writer_of(run)
    deliver(writer, 0, 1)
    follower = Follower(run)
    follower.read()
    late = writer_of(run, "q.part", rank=1)
    deliver(late, 1, 2)
    assert positions(follower.read()) == [1, 0]
    writer.close()
    late.close()


def test_the_newest_crew_counts_and_all_loaders_are_kept(run: Path) -> None:
    writer = writer_of(run)
    for number, name in enumerate(("train", "val")):
        writer.meta("loader", id=number, name=name, where="t.py:1", kind="DataLoader", config={})
    for epoch in range(3):
        writer.meta("crew", loader=0, epoch=epoch, pids=[epoch])
    writer.meta("crew", loader=1, epoch=0, pids=[9])
    (process,) = Follower(run).read().run.processes
    assert [loader.name for loader in process.loaders] == ["train", "val"]
    assert [(crew.loader, crew.pids) for crew in process.crews] == [(0, (2,)), (1, (9,))]
    writer.close()


def test_ended_workers_are_forgotten(run: Path) -> None:
    ended = writer_of(run, "a.part", worker=True)
    ended.meta("end", end_ns=1, stopped=None)
    ended.close()
    killed = writer_of(run, "b.part", worker=True, pid=2**22 + 1)  # no such process can be
    killed.close()
    long_ago = time.time() - 3600
    os.utime(parts_folder(run) / "b.part", (long_ago, long_ago))
    busy = writer_of(run, "c.part", worker=True)
    follower = Follower(run)
    assert len(follower.read().run.processes) == 1
    busy.meta("end", end_ns=time.perf_counter_ns(), stopped=None)
    assert len(follower.read().run.processes) == 1  # what it did last is still of interest
    busy.close()


def test_a_pulse_comes_back_with_its_unknown_fields(run: Path) -> None:
    writer = writer_of(run)
    writer.row(f.PULSE, 0, f.PulseRow(2, 0, 5, 6, -1, 7, 8, 9, shm_bytes=-1, shm_total_bytes=-1))
    writer.row(f.PULSE, 0, f.PulseRow(99, 0, 6, 6, 1, 7, 8, 9, shm_bytes=10, shm_total_bytes=11))
    writer.close()
    (process,) = Follower(run).read().run.processes
    first, second = process.pulses
    assert (first.at_ns, first.doing, first.queued_ns, first.rss_bytes) == (5, Doing.FETCH, None, 8)
    assert (first.shm_bytes, second.doing, second.shm_total_bytes) == (None, None, 11)


def test_the_end_of_a_run_is_seen_and_what_was_read_stays(run: Path) -> None:
    writer = writer_of(run)
    deliver(writer, 0, 3)
    follower = Follower(run)
    tail = follower.read()
    assert (tail.run.live, tail.run.exit_code, tail.run.command) == (True, None, ("train.py",))
    writer.close()
    finish(run, 7)
    tail = follower.read()
    assert (tail.run.live, tail.run.exit_code) == (False, 7)
    assert positions(tail) == [0, 1, 2]


def test_a_finished_run_reads_like_one_that_runs(run: Path) -> None:
    writer = writer_of(run)
    deliver(writer, 0, 3)
    writer.close()
    finish(run, 0)
    tail = Follower(run).read()
    assert (tail.run.live, tail.run.exit_code, positions(tail)) == (False, 0, [0, 1, 2])


def test_a_silent_run_whose_launcher_is_gone_has_died(tmp_path: Path) -> None:
    path = tmp_path / "dead.unstarve"
    launch = {"command": ["x"], "kind": "run", "started_at": 0.0, "pid": 2**22 + 1}
    path.write_bytes(f.header() + meta_chunk(0, "launch", launch | {"host": socket.gethostname()}))
    os.utime(path, (1, 1))
    assert not Follower(path).read().run.live
    assert newest_running(tmp_path) is None


def test_a_file_that_is_not_a_run_is_refused_by_name(tmp_path: Path, run: Path) -> None:
    with pytest.raises(RunFileError, match=r"none\.unstarve"):
        Follower(tmp_path / "none.unstarve").read()
    foreign = tmp_path / "foreign.unstarve"
    foreign.write_bytes(b"something else entirely")
    with pytest.raises(NotARunError, match=r"foreign\.unstarve"):
        Follower(foreign).read()
    follower = Follower(run)
    follower.read()
    discard(run)
    with pytest.raises(RunFileError, match="was removed"):
        follower.read()


def test_the_newest_running_run_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert newest_running(tmp_path) is None
    for number, name in enumerate(("first", "second", "ended")):
        monkeypatch.setattr("unstarve.record.run_file.time.time", lambda at=number: time.time_ns() / 1e9 + at)
        claim(tmp_path / f"{name}.unstarve", ["train.py"], "run")
    monkeypatch.undo()
    finish(tmp_path / "ended.unstarve", 0)
    found = newest_running(tmp_path)
    assert found is not None
    assert found.name == "second.unstarve"
