"""What is written comes back, and what is damaged is told."""

from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path

import pytest

from fake_work import work_of
from fakes import FakeTraining, run_of
from large_run import large_run
from run_files import slow_loading_run, write_run
from sample_rows import BATCH
from unstarve.errors import NewerFormatError, NotARunError, RunExistsError, RunFileError
from unstarve.model import Phase, Run
from unstarve.record import format as f
from unstarve.record.chunks import chunk
from unstarve.record.follow import Follower
from unstarve.record.run_file import claim, discard, finish, parts_folder
from unstarve.record.run_reader import read_run
from unstarve.record.writer import Writer

PROCESS = {
    "pid": 7,
    "host": "here",
    "rank": None,
    "worker": False,
    "versions": {},
    "start_ns": 1,
    "offset_ns": 2,
}

CONFIG = {"num_workers": 2}
ROW = BATCH._replace(task=7, ready=-1, sampler_ns=10, wait_cpu_ns=20, step_cpu_ns=30, step_queued_ns=40)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "a.unstarve"
    claim(path, ["train.py", "--lr", "1"], "run")
    return path


def record(run: Path, steps: int, *, end: bool = True, name: str = "p.part") -> Writer:
    """One process that delivered `steps` batches, far apart."""
    writer = Writer(parts_folder(run) / name)
    writer.meta("process", **PROCESS)
    writer.meta(
        "loader", id=0, name="train", where="train.py:3", kind="DataLoader", config={"num_workers": 2}
    )
    writer.row(f.EPOCH_BEGIN, 0, f.EpochBeginRow(0, 0, 0, 0, begin_ns=10, ready_ns=20))
    for step in range(steps):
        now = (step + 1) * 10**16
        row = ROW._replace(flags=f.NESTED, position=step, thread=3, ask_ns=now, got_ns=now + 5)
        writer.row(f.BATCH, now, row)
    writer.row(f.EPOCH_END, 10**18, f.EpochEndRow(0, 0, 0, ask_ns=30, end_ns=40, error=b"KeyError"))
    if end:
        writer.meta("end", end_ns=99, stopped="steps")
    writer.close()
    return writer


def test_everything_recorded_comes_back(run: Path) -> None:
    record(run, 3)
    assert finish(run, 5) is None
    back = read_run(run)
    assert back.command == ("train.py", "--lr", "1")
    assert back.exit_code == 5
    assert not back.live
    assert back.lost == ()
    (process,) = back.processes
    assert (process.pid, process.end_ns, process.stopped) == (7, 99, "steps")
    assert process.loaders[0].config == CONFIG
    batch = process.batches[2]
    assert (batch.position, batch.size, batch.nbytes, batch.nested, batch.thread) == (2, 32, None, True, 3)
    assert (batch.wait_ns, batch.own_ns, batch.phase) == (5, 9, Phase.REAL)
    assert (batch.task, batch.ready, batch.sampler_ns, batch.wait_queued_ns) == (7, None, 10, None)
    (epoch,) = process.epochs
    assert (epoch.begin_ns, epoch.ready_ns, epoch.last_ask_ns, epoch.end_ns) == (10, 20, 30, 40)
    assert epoch.error == "KeyError"


def test_first_and_last_machine_usage_and_tensor_counts_come_back(run: Path) -> None:
    writer = Writer(parts_folder(run) / "p.part")
    writer.meta("process", **PROCESS)
    writer.meta("loader", id=0, name="train", where="train.py:3", kind="DataLoader", config=CONFIG)
    writer.meta("batch", loader=0, tensors=3)
    used = {
        "process_cpu_s": 1.5,
        "machine_cpu_s": None,
        "machine_cores": 2,
        "periods": 9,
        "throttled": None,
    }
    for at_ns in (10, 20, 30):
        writer.meta("system", cores=2, usage={"at_ns": at_ns, **used})
    writer.close()
    finish(run, 0)
    (process,) = read_run(run).processes
    assert process.loaders[0].tensors == 3
    assert process.system["usage_before"] == {"at_ns": 10, **used}
    assert process.system["usage"] == {"at_ns": 30, **used}


def test_a_finished_run_is_one_file(run: Path) -> None:
    record(run, 3)
    finish(run, 0)
    assert list(run.parent.iterdir()) == [run]


def test_a_run_being_recorded_is_read_from_its_parts_and_is_live(run: Path) -> None:
    record(run, 3, end=False)
    back = read_run(run)
    assert back.live
    assert back.exit_code is None
    assert len(back.processes[0].batches) == 3


def test_rows_of_slow_steps_are_on_disk_at_once(run: Path) -> None:
    writer = Writer(parts_folder(run) / "p.part")
    writer.meta("process", **PROCESS)
    for step in range(4):
        now = (step + 1) * 10**17
        writer.row(f.BATCH, now, ROW._replace(position=step, ask_ns=now, got_ns=now))
    # No flush, no close: the process may be killed here.
    assert len(read_run(run).processes[0].batches) == 4
    writer.close()


def test_a_truncated_file_gives_all_whole_chunks(run: Path) -> None:
    record(run, 50, name="a.part")
    record(run, 50, name="b.part")
    finish(run, 0)
    whole = run.read_bytes()
    run.write_bytes(whole[: len(whole) - 1501])
    back = read_run(run)
    assert any("damaged or cut off" in message for message in back.lost)
    assert len(back.processes[0].batches) == 50
    assert 0 < len(back.processes[1].batches) <= 50
    assert back.exit_code is None


def test_damage_in_the_middle_costs_only_the_damaged_chunks(run: Path) -> None:
    record(run, 50)
    finish(run, 0)
    data = bytearray(run.read_bytes())
    hit = data.index(f.SYNC, len(data) * 3 // 4) + f.CHUNK.size + 3
    data[hit] ^= 0xFF
    run.write_bytes(data)
    back = read_run(run)
    assert len(back.lost) == 1
    assert len(back.processes[0].batches) == 49
    assert back.exit_code == 0


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 something else entirely", b"UNSTARV"])
def test_a_foreign_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "foreign.unstarve"
    path.write_bytes(content)
    with pytest.raises(NotARunError, match=r"foreign\.unstarve"):
        read_run(path)


def test_a_newer_format_asks_for_an_upgrade(run: Path) -> None:
    run.write_bytes(f.HEADER.pack(f.MAGIC, f.VERSION + 1, 0, 0))
    with pytest.raises(NewerFormatError, match="pip install -U"):
        read_run(run)


def test_rows_with_fields_of_a_later_version_are_read(run: Path) -> None:
    record(run, 0)
    part = parts_folder(run) / "p.part"
    stream = f.CHUNK.unpack_from(part.read_bytes(), f.HEADER.size)[1]
    row = f.ROW_KINDS[f.BATCH].pack(*ROW._replace(position=4, ask_ns=5, got_ns=6))
    longer = (row + b"new!") * 2
    with part.open("ab") as file:
        file.write(chunk(stream, f.BATCH, longer, len(row) + 4))
        file.write(chunk(stream, 999, b"a kind nobody knows yet", 1))
    back = read_run(run)
    assert [batch.position for batch in back.processes[0].batches] == [4, 4]
    assert back.lost == ()


def test_a_full_disk_ends_the_recording_and_is_reported(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(run, 3, end=False)
    writer = Writer(parts_folder(run) / "q.part")
    writer.meta("process", **PROCESS)
    real, used = os.pwrite, [0]

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        if offset >= f.HEADER.size + f.CHUNK.size + f.RESERVE_BYTES:  # blocks that would be new
            used[0] += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    for step in range(10):
        now = (step + 1) * 10**17
        writer.row(f.BATCH, now, ROW._replace(position=step, ask_ns=now, got_ns=now))
    writer.close()
    assert used[0] == 1, "after the first failure nothing more is tried"
    monkeypatch.undo()
    lost = [message for process in read_run(run).processes for message in process.lost]
    assert lost == ["recording stopped early: No space left on device"]


def test_a_process_that_could_not_write_anything_is_reported(run: Path) -> None:
    (parts_folder(run) / "p.part").touch()
    assert any("could not write" in message for message in read_run(run).lost)


def test_a_name_in_use_is_refused(run: Path) -> None:
    with pytest.raises(RunExistsError, match="being recorded"):
        claim(run, ["train.py"], "run", force=True)
    finish(run, 0)
    with pytest.raises(RunExistsError, match="--force"):
        claim(run, ["train.py"], "run")
    claim(run, ["other.py"], "run", force=True)
    assert read_run(run).command == ("other.py",)


def test_force_replaces_runs_and_nothing_else(tmp_path: Path) -> None:
    precious = tmp_path / "weights.pt"
    precious.write_text("weeks of work")
    with pytest.raises(RunExistsError, match="not a run file"):
        claim(precious, ["train.py"], "run", force=True)
    assert precious.read_text() == "weeks of work"


def test_a_folder_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(RunFileError, match="cannot write"):
        claim(blocked / "a.unstarve", ["train.py"], "run")
    with pytest.raises(RunFileError, match="is a folder"):
        claim(tmp_path, ["train.py"], "run")
    assert list(tmp_path.iterdir()) == [blocked]


def test_parts_that_cannot_be_folded_stay_readable(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(run, 3)

    def replace(self: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", replace)
    problem = finish(run, 0)
    assert problem is not None
    assert "No space left" in problem
    assert len(read_run(run).processes[0].batches) == 3


def test_a_run_that_ended_on_a_full_disk_has_ended(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(run, 3)
    size = run.stat().st_size
    follower = Follower(run)
    assert follower.read().run.live

    def replace(self: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", replace)
    problem = finish(run, 7, "one thing")
    assert run.stat().st_size == size, "a full disk has no room for more"
    back = read_run(run)
    assert (back.live, back.exit_code, back.damaged) == (False, 7, False)
    assert back.lost == (f"one thing; {problem}",)
    assert len(back.processes[0].batches) == 3
    for look in (follower, Follower(run)):
        tail = look.read()
        assert (tail.run.live, tail.run.exit_code) == (False, 7)
        assert len(tail.run.processes[0].batches) == 3
    monkeypatch.undo()
    claim(run, ["again.py"], "run", force=True)


def test_discard_leaves_nothing(run: Path) -> None:
    record(run, 3)
    discard(run)
    assert list(run.parent.iterdir()) == []


def test_the_cpu_time_of_a_workers_other_threads_comes_back(tmp_path: Path) -> None:
    works = (work_of(0, 0, cpu_ms=1), work_of(1, 5, blocked_ms=9, helped_ms=8), work_of(1, 20, iteration=1))
    worker = dataclasses.replace(FakeTraining().process(), worker=True, works=works)
    (back,) = read_run(write_run(tmp_path / "helped.unstarve", run_of(worker))).processes
    assert back.works == works


def test_the_cpu_time_of_helping_threads_is_kept_per_loader(tmp_path: Path) -> None:
    works = (
        work_of(0, 0, loader=0, helped_ms=8),
        work_of(0, 5, loader=1),
        work_of(0, 9, loader=2, helped_ms=3),
    )
    process = dataclasses.replace(FakeTraining().process(), works=works)
    (back,) = read_run(write_run(tmp_path / "helped.unstarve", run_of(process))).processes
    assert back.works == works


@pytest.mark.parametrize("made", [large_run(40, 3), slow_loading_run(workers=2)])
def test_a_whole_run_of_a_loader_and_its_workers_comes_back(tmp_path: Path, made: Run) -> None:
    back = read_run(write_run(tmp_path / "whole.unstarve", made))
    assert (back.command, back.kind, back.exit_code, back.lost) == (made.command, made.kind, 0, ())
    found, written = (
        {process.pid: dataclasses.replace(process, system={}) for process in run.processes}
        for run in (back, made)
    )
    assert found == written
