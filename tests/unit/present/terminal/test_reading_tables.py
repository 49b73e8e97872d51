"""File reads and the processor's counters on a screen of 80 columns."""

from __future__ import annotations

import io

from rich.console import Console

from unstarve.model.file_reads import FileReads, KindReads, ProcessReads, ReadPattern, ReadSummary
from unstarve.model.processor import ProcessorSummary, ProcessorUse
from unstarve.present.terminal.processor_table import processor_table
from unstarve.present.terminal.reading_tables import reading_tables

FILE = FileReads(
    "/data/" + "deep/" * 20 + "a.h5", "HDF5", 10**9, 2, 4, 0.001, 4000, 10**9, 2.5, 0, 0.0, 0.175, 0, 0
)


def summary(why_not: str | None = None, ratio: float | None = 4.2) -> ReadSummary:
    return ReadSummary(
        why_not=why_not,
        opens=4,
        reads=4000,
        read_bytes=10**9,
        used_bytes=238_000_000,
        read_per_used=ratio,
        storage_bytes=None,
        patterns=(ReadPattern("unused_bytes", "Loading reads too much.", "Rechunk the file."),),
        kinds=(KindReads("HDF5", 1, 4, 4000, 10**9, 2.5, 0, 0),),
        files=(FILE,),
        processes=(ProcessReads(77, 1, 4, 0.001, 4000, 10**9, 2.5, 0, 0.0, 0, "worker"),),
    )


def shown(part: object) -> str:
    out = io.StringIO()
    Console(file=out, width=80).print(part)
    assert all(len(line) <= 80 for line in out.getvalue().splitlines())
    return out.getvalue()


def test_patterns_files_and_processes_fit_the_screen() -> None:
    text = shown(reading_tables(summary()))
    assert "read ÷ used is 4.20×" in " ".join(text.split())
    assert "· Loading reads too much.\n  Rechunk the file." in "\n".join(
        line.rstrip() for line in text.splitlines()
    )
    for word in ("HDF5", "4,000", "1.0 GB", "2.50 s", "175 ms", "worker 77"):
        assert word in text


def test_an_unknown_ratio_is_said_to_be_one() -> None:
    text = " ".join(shown(reading_tables(summary(ratio=None))).split())
    assert "reads of memory-mapped files are not counted" in text


def test_nothing_counted_is_no_table() -> None:
    assert reading_tables(None) is None
    assert reading_tables(summary(why_not="not built")) is None
    assert processor_table(None) is None
    assert processor_table(ProcessorSummary("no counters", None, None)) is None


def test_step_and_loading_are_rows() -> None:
    use = ProcessorUse(10**9, 2.345, 5.0, None, 1.0)
    text = shown(processor_table(ProcessorSummary(None, use, use)))
    assert [line.split() for line in text.splitlines() if "2.3" in line] == [
        ["step", "2.35", "5.00", "–"],
        ["loading", "2.35", "5.00", "–"],
    ]
