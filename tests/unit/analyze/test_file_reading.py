"""Counts of file reads → patterns and read ÷ used."""

from __future__ import annotations

import dataclasses
from typing import Any

from fake_work import work_of
from fakes import run_of, simple_run
from unstarve.analyze.file_reading import summarize_reads
from unstarve.model import Run
from unstarve.model.file_reads import FileReads, KindReads, ProcessReads, ReadSummary, RecordedReads

FILE = FileReads("/data/a", "HDF5", 1_000_000, 1, 1, 0.001, 10, 1000, 0.001, 0, 0.0, 0.001, 0, 0)


def summary(
    batch_bytes: int,
    process: dict[str, Any],
    *files: FileReads,
    kind: str = "HDF5",
    storage_bytes: int | None = None,
) -> ReadSummary:
    """Of a training process that delivered 20 batches of `batch_bytes` and read as `process` says."""
    run: Run = simple_run([(0.01, 0.01)] * 20)
    (trainer,) = run.processes
    trainer = dataclasses.replace(
        trainer, batches=tuple(one._replace(nbytes=batch_bytes, size=8) for one in trainer.batches)
    )
    if storage_bytes is not None:
        work = work_of(0, 0.0, storage_bytes=storage_bytes)
        trainer = dataclasses.replace(trainer, works=(work,))
    numbers = dict.fromkeys(("files", "opens", "reads", "bytes", "slow_reads", "mapped_bytes"), 0)
    times = dict.fromkeys(("open_s", "seconds", "slow_s"), 0.0)
    reading = ProcessReads(trainer.pid, **{**numbers, **times, **process})
    kinds = (KindReads(kind, 1, 1, 1, 1, 0.0, 0, 0),)
    reads = RecordedReads(files=files, kinds=kinds, processes=(reading,))
    found = summarize_reads(dataclasses.replace(run_of(trainer), reads=reads), [trainer])
    assert found is not None
    return found


def ids(found: ReadSummary) -> list[str]:
    return [one.id for one in found.patterns]


def test_a_run_without_io_has_no_summary() -> None:
    run = simple_run([(0.01, 0.01)] * 20)
    assert summarize_reads(run, run.processes) is None


def test_reading_what_is_used_is_no_pattern() -> None:
    found = summary(1_000_000, {"files": 4, "opens": 4, "reads": 80, "bytes": 20_000_000, "seconds": 0.1})
    assert found.read_per_used == 1
    assert found.patterns == ()
    assert found.processes[0].role == "training"


def test_small_files_are_told_with_their_size() -> None:
    process = {"files": 160, "opens": 160, "reads": 160, "bytes": 1_600_000, "open_s": 0.2, "seconds": 0.1}
    found = summary(80_000, process)
    assert ids(found) == ["small_files"]
    assert "of about 10 KB, 1 for every sample" in found.patterns[0].finding


def test_few_files_opened_again_and_again_are_not_small_files() -> None:
    process = {"files": 1, "opens": 160, "reads": 160, "bytes": 1_600_000}
    found = summary(80_000, process, dataclasses.replace(FILE, opens=160, reads=160, bytes=1_600_000))
    assert ids(found) == ["reopened_file"]


def test_bytes_read_for_nothing_are_told_with_a_remedy_for_the_kind() -> None:
    found = summary(10_000, {"files": 1, "opens": 1, "reads": 20, "bytes": 2_000_000})
    assert found.read_per_used == 10
    assert ids(found) == ["unused_bytes"]
    assert "Rechunk" in found.patterns[0].remedy


def test_a_compressed_file_that_is_read_several_times_over_is_told() -> None:
    video = dataclasses.replace(FILE, kind="video", reads=50, bytes=6_000_000)
    found = summary(
        10_000_000, {"files": 1, "opens": 1, "reads": 50, "bytes": 6_000_000}, video, kind="video"
    )
    assert ids(found) == ["unused_bytes"]
    assert "6.0× over in every epoch" in found.patterns[0].finding
    assert "frames you need" in found.patterns[0].remedy


def test_slow_reads_are_cold() -> None:
    process = {"files": 9, "opens": 9, "reads": 400, "bytes": 20_000_000, "seconds": 1.0}
    found = summary(1_000_000, {**process, "slow_reads": 300, "slow_s": 0.9})
    assert ids(found) == ["cold_reads"]
    assert "300 of 400 reads" in found.patterns[0].finding
    assert "a slow read takes 3.00 ms" in found.patterns[0].finding
    assert ids(summary(1_000_000, {**process, "slow_reads": 10, "slow_s": 0.01})) == []


def test_bytes_that_storage_answers_are_cold() -> None:
    process = {"files": 9, "opens": 9, "reads": 400, "bytes": 20_000_000, "seconds": 1.0}
    found = summary(1_000_000, process, storage_bytes=10_000_000)
    assert ids(found) == ["cold_reads"]
    assert "50% of the bytes come from storage" in found.patterns[0].finding
    assert ids(summary(1_000_000, process, storage_bytes=2_000_000)) == []


def test_storage_tells_what_is_read_of_a_mapped_file() -> None:
    process = {"files": 1, "opens": 1, "reads": 2, "bytes": 9000, "mapped_bytes": 10**9}
    found = summary(50_000, process, storage_bytes=4_000_000, kind="memmap")
    assert found.read_per_used == 4
    assert ids(found) == ["unused_bytes", "cold_reads"]
    assert "pages of 4 KB" in found.patterns[0].remedy


def test_jumps_in_a_file_are_told() -> None:
    jumping = dataclasses.replace(FILE, reads=500, jumps=490, bytes=500 * 2000)
    found = summary(50_000, {"files": 1, "opens": 1, "reads": 500, "bytes": 1_000_000}, jumping)
    assert ids(found) == ["random_reads"]


def test_mapped_files_leave_read_per_used_unknown() -> None:
    found = summary(50_000, {"files": 1, "opens": 1, "reads": 2, "bytes": 9000, "mapped_bytes": 10**9})
    assert found.read_per_used is None
