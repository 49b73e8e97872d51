"""The tables that the preloaded library writes."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from unstarve.record.read_counts import NOTHING_COUNTED, keep_reads, read_counts
from unstarve.record.run_file import claim, finish, parts_folder
from unstarve.record.run_reader import read_run


def table(process: int, *, python: bool = True, **files: tuple[int, int, int]) -> bytes:
    """A table as ``native/io_table.h`` lays it out; of each file: opens, reads, bytes."""
    entries, text = b"", b""
    for name, (opens, reads, count) in files.items():
        path = f"/data/{name}".encode()
        entries += struct.pack("<QII12Q", 7, len(text), len(path), opens, 10, reads, count, 2000, *[0] * 7)
        text += path
    numbers = (process, 112, len(files), len(text), 64, 64 + len(entries), python)
    header = struct.pack("<8s7I", b"UNSTIO01", *numbers)
    return header.ljust(64, b"\0") + entries + text


def test_a_table_is_read_back() -> None:
    process, is_python, counted = read_counts(table(5, a=(1, 2, 300), opened_only=(1, 0, 0)))
    assert (process, is_python) == (5, True)
    assert [(one.path, one.opens, one.reads, one.bytes) for one in counted] == [("/data/a", 1, 2, 300)]


def test_damaged_tables_are_refused_or_read_in_part() -> None:
    whole = table(5, a=(1, 2, 300), b=(1, 1, 10))
    chance = random.Random(1)
    for _ in range(500):
        damaged = bytearray(whole[: chance.randrange(len(whole) + 1)])
        for _ in range(chance.randrange(4)):
            if damaged:
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            _, _, counted = read_counts(bytes(damaged))
        except ValueError:
            continue
        assert all(isinstance(one.path, str) for one in counted)


def kept(folder: Path, *tables: bytes, why_not: str | None = None):
    run = folder / "a.unstarve"
    claim(run, ["train.py"], "run")
    for number, data in enumerate(tables):
        (parts_folder(run) / f"{number}-1.io").write_bytes(data)
    keep_reads(run, why_not)
    assert finish(run, 0) is None
    return read_run(run).reads


def test_processes_and_files_are_added_up(tmp_path: Path) -> None:
    reads = kept(tmp_path, table(1, a=(1, 2, 300), b=(1, 1, 10)), table(2, a=(3, 4, 50)), b"cut")
    assert reads.why_not is None
    assert [(one.path, one.processes, one.opens, one.bytes) for one in reads.files] == [
        ("/data/a", 2, 4, 350),
        ("/data/b", 1, 1, 10),
    ]
    assert [(one.process, one.files, one.bytes) for one in reads.processes] == [(1, 2, 310), (2, 1, 50)]
    assert sum(one.bytes for one in reads.kinds) == 360


def test_other_programs_count_only_where_python_reads_nothing(tmp_path: Path) -> None:
    compiler = table(2, python=False, b=(3, 4, 50))
    reads = kept(tmp_path, table(1, a=(1, 2, 300)), compiler)
    assert [one.path for one in reads.files] == ["/data/a"]
    (tmp_path / "alone").mkdir()
    assert [one.path for one in kept(tmp_path / "alone", compiler).files] == ["/data/b"]


def test_why_nothing_was_counted_is_kept(tmp_path: Path) -> None:
    assert kept(tmp_path).why_not == NOTHING_COUNTED


def test_the_reason_of_the_launcher_is_kept(tmp_path: Path) -> None:
    assert kept(tmp_path, why_not="not built").why_not == "not built"


@pytest.mark.parametrize("text", [b"", b"UNSTIO01", b"UNSTARVE" * 9])
def test_what_is_no_table_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"cut off|not a table"):
        read_counts(text)
